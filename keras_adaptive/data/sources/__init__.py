"""Public corpora: downloads, mirrors and the published counts that a download is compared with."""
