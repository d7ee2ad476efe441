"""Generation by a Transformer with a plain softmax, as a PyTorch user writes it for speed, for comparison.

Its own linear layers, one product for query, key and value, `scaled_dot_product_attention` over the tokens so far, a
cache that is updated in place, and `torch.inference_mode`.
"""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, dim, ffn_dim, num_heads, batch_size, capacity):
        super().__init__()
        self.attention_norm, self.ffn_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.ffn_in, self.ffn_out = nn.Linear(dim, ffn_dim), nn.Linear(ffn_dim, dim)
        self.shape = (batch_size, 1, 3, num_heads, dim // num_heads)
        self.keys, self.values = (torch.zeros(batch_size, num_heads, capacity, dim // num_heads) for _ in range(2))

    def forward(self, x, place):  # (batch, 1, dim)
        query, key, value = self.qkv(self.attention_norm(x)).view(self.shape).permute(2, 0, 3, 1, 4)
        self.keys[:, :, place : place + 1], self.values[:, :, place : place + 1] = key, value
        seen = self.keys[:, :, : place + 1], self.values[:, :, : place + 1]
        mixed = nn.functional.scaled_dot_product_attention(query, *seen)
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        return x + self.ffn_out(torch.relu(self.ffn_in(self.ffn_norm(x))))


def writer(vocabulary_size, dim, num_blocks, ffn_dim, num_heads, batch_size, capacity):
    """Returns a function that draws texts, `words(number)`, up to `capacity` words from the beginning."""
    embedding = nn.Embedding(vocabulary_size, dim)
    blocks = nn.ModuleList(Block(dim, ffn_dim, num_heads, batch_size, capacity) for _ in range(num_blocks))
    norm, head = nn.LayerNorm(dim), nn.Linear(dim, vocabulary_size, bias=False)

    @torch.inference_mode()
    def words(number):
        tokens = torch.full((batch_size, 1), 4)
        for place in range(number):
            x = embedding(tokens)
            for block in blocks:
                x = block(x, place)
            below = torch.softmax(head(norm(x))[:, -1], -1).cumsum(-1)  # faster than torch.multinomial
            tokens = torch.searchsorted(below, torch.rand(batch_size, 1)).clamp(max=vocabulary_size - 1)
            tokens.tolist()  # the user reads every word

    return words
