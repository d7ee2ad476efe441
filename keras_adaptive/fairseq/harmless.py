"""Options of fairseq that do not change what a trained model computes, of all versions from 0.3 to 0.12.

A checkpoint lists the options of everything that took part in its training, of its data and of its evaluation. An
option that is not in this set may describe another function, such as the positions of a fork.

Options of two other programs are in the set too. Those of kNN-LM describe a datastore, which an evaluation mixes with
the probabilities of the model. That of Shortformer, `sliding_inf`, is a way to read the text of an evaluation.
"""

HARMLESS = set(
    """
    _name adadelta_eps adadelta_rho adafactor_eps adam_betas adam_eps adamax_betas adamax_eps aim_repo aim_run_hash
    all_gather_list_size amp amp_batch_retries amp_init_scale amp_scale_window anneal_eps arch average_sync
    azureml_logging baseline_model baseline_model_langs batch_size batch_size_valid beam beam_mt bert_score_lang
    best_checkpoint_metric beta1 bf16 block_lr block_momentum bpe bpe_add_prefix_space bpe_cased bpe_codes
    bpe_merges bpe_separator bpe_vocab bpe_vocab_file broadcast_buffers bucket_cap_mb buffer_size c10d_bucket_cap_mb
    checkpoint_shard_count checkpoint_suffix clip_norm clip_threshold combine_valid_subsets constraints
    context_window continue_once cpu cpu_offload criterion curriculum data data_buffer_size dataset_impl ddp_backend
    ddp_comm_hook debug_param_names decay_rate decay_steps decoding_format device_id disable_validation
    distributed_backend distributed_init_method distributed_no_spawn distributed_num_procs distributed_port
    distributed_rank distributed_world_size distributed_wrapper diverse_beam_groups diverse_beam_strength
    diversity_rate dynamic_groups ema_decay ema_fp32 ema_seed_model ema_start_update ema_update_freq
    empty_cache_freq end_learning_rate eos eos_prob_threshold eos_token epoch2lr fast_stat_sync final_lr_scale
    find_unused_parameters finetune_from_model fix_batches_to_gpus fixed_validation_seed force_anneal fp16
    fp16_adam_stats fp16_init_scale fp16_no_flatten_grads fp16_scale_tolerance fp16_scale_window fp32_reduce_scatter
    future_target gen_subset global_sync_iter gpt2_encoder_json gpt2_vocab_bpe gradient_as_bucket_view
    grouped_shuffling groups heartbeat_timeout hold_steps ignore_prefix_size ignore_unused_valid_subsets
    init_lr_scale input iter_decode_eos_penalty iter_decode_force_max_iter iter_decode_max_iter
    iter_decode_with_beam iter_decode_with_external_reranker keep_best_checkpoints keep_interval_updates
    keep_interval_updates_pattern keep_last_epochs label_smoothing lamb_betas lamb_eps lang_to_offline_shard_ratio
    langs lazy_load lenpen lenpen_mt lm_path lm_weight load_checkpoint_on_all_dp_ranks local_rank localsgd_frequency
    log_file log_format log_interval lr lr_deacy_period lr_decay lr_patience lr_period_updates lr_scheduler
    lr_shrink lr_threshold lrshrink match_source_len max_epoch max_len_a max_len_a_mt max_len_b max_len_b_mt max_lr
    max_sentences max_sentences_valid max_source_positions max_tokens max_tokens_valid max_update max_valid_steps
    maximize_best_checkpoint_metric memory_efficient_bf16 memory_efficient_fp16 min_len min_loss_scale min_lr
    model_overrides momentum moses_no_dash_splits moses_no_escape moses_source_lang moses_target_lang
    multilang_sampling_alpha nbest no_beamable_mm no_bias_correction no_c10d no_early_stop no_epoch_checkpoints
    no_last_checkpoints no_progress_bar no_repeat_ngram_size no_reshard_after_forward no_save
    no_save_optimizer_state no_seed_provided not_fsdp_flatten_parameters nprocs_per_node num_shards num_workers
    on_cpu_convert_precision optimizer optimizer_overrides output_word_probs output_word_stats pad pad_to_fixed_bsz
    pad_to_fixed_length path patience phase_ratio pipeline_balance pipeline_checkpoint pipeline_chunks
    pipeline_decoder_balance pipeline_decoder_devices pipeline_devices pipeline_encoder_balance
    pipeline_encoder_devices pipeline_model_parallel plasma_path post_process power prefix_size print_alignment
    print_step profile quiet raw_text relative_step remove_bpe replace_unk report_accuracy
    required_batch_size_multiple required_seq_len_multiple reset_dataloader reset_logging reset_lr_scheduler
    reset_meters reset_optimizer restore_file results_path retain_dropout retain_dropout_modules retain_iter_history
    sacrebleu sacrebleu_char_level sacrebleu_lowercase sacrebleu_tokenizer sample_break_mode
    sample_without_replacement sampling sampling_temperature sampling_topk sampling_topp save_dir save_interval
    save_interval_updates scale_parameter score_reference scoring seed sentence_avg sentencepiece_alpha
    sentencepiece_enable_sampling sentencepiece_model sentencepiece_model_path sentencepiece_vocab shard_id
    shorten_data_split_list shorten_data_split_whitelist shorten_method shrink_min
    skip_invalid_size_inputs_valid_test skip_remainder_batch slowmo_algorithm slowmo_base_algorithm slowmo_momentum
    softmax_batch source_lang stop_min_lr stop_time_hours store_ema suppress_crashes t_mult target_lang task
    tbmf_wrapper temperature tensorboard_logdir test_subset threshold_loss_scale tokenizer total_num_update
    train_subset unk unk_replace_dict unkpen unnormalized update2lr update_epoch_batch_itr update_freq
    update_ordered_indices_seed use_bmuf use_nbm use_old_adam use_plasma_view use_sharded_state user_dir
    valid_subset validate_after_updates validate_interval validate_interval_updates wandb_project warmup_init
    warmup_init_lr warmup_iterations warmup_steps warmup_updates weight_decay wer_char_level wer_lowercase
    wer_remove_punct wer_tokenizer workers write_checkpoints_asynchronously zero_sharding
    """.split()
)
HARMLESS |= set(  # of kNN-LM and Shortformer
    """
    dstore_filename dstore_fp16 dstore_mmap dstore_size faiss_metric_type indexfile k knn_keytype knn_sim_func knnlm
    lm_eval lmbda move_dstore_to_mem no_load_keys probe save_knnlm_dstore sliding_inf
    """.split()
)
