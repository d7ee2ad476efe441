"""Options of fairseq that do not change what a trained model computes, of all versions from 0.3 to 0.12.

A checkpoint lists the options of everything that took part in its training. An option that is in none of these sets may
describe another function, such as the positions of a fork.
"""

TRAINING = set(
    """
    _name aim_repo aim_run_hash all_gather_list_size amp amp_batch_retries amp_init_scale amp_scale_window arch
    azureml_logging best_checkpoint_metric bf16 bpe broadcast_buffers bucket_cap_mb c10d_bucket_cap_mb
    checkpoint_shard_count checkpoint_suffix clip_norm combine_valid_subsets continue_once cpu cpu_offload criterion
    curriculum ddp_comm_hook debug_param_names device_id disable_validation distributed_backend
    distributed_init_method distributed_no_spawn distributed_num_procs distributed_port distributed_rank
    distributed_wrapper ema_decay ema_fp32 ema_seed_model ema_start_update ema_update_freq empty_cache_freq
    fast_stat_sync find_unused_parameters finetune_from_model fix_batches_to_gpus fixed_validation_seed fp16
    fp16_init_scale fp16_no_flatten_grads fp16_scale_tolerance fp16_scale_window fp32_reduce_scatter gen_subset
    gradient_as_bucket_view grouped_shuffling heartbeat_timeout ignore_unused_valid_subsets keep_best_checkpoints
    keep_interval_updates keep_interval_updates_pattern keep_last_epochs load_checkpoint_on_all_dp_ranks local_rank
    localsgd_frequency log_file log_format log_interval lrshrink max_epoch max_sentences max_sentences_valid
    max_tokens max_tokens_valid max_valid_steps memory_efficient_bf16 memory_efficient_fp16 min_loss_scale no_c10d
    no_epoch_checkpoints no_last_checkpoints no_progress_bar no_reshard_after_forward no_save
    no_save_optimizer_state no_seed_provided not_fsdp_flatten_parameters nprocs_per_node num_shards num_workers
    on_cpu_convert_precision optimizer_overrides patience pipeline_balance pipeline_checkpoint pipeline_chunks
    pipeline_decoder_balance pipeline_decoder_devices pipeline_devices pipeline_encoder_balance
    pipeline_encoder_devices pipeline_model_parallel profile required_batch_size_multiple required_seq_len_multiple
    reset_dataloader reset_logging reset_lr_scheduler reset_meters reset_optimizer restore_file save_dir
    save_interval save_interval_updates scoring shard_id skip_invalid_size_inputs_valid_test skip_remainder_batch
    slowmo_algorithm slowmo_base_algorithm slowmo_momentum stop_min_lr stop_time_hours store_ema suppress_crashes
    task tbmf_wrapper tensorboard_logdir test_subset threshold_loss_scale tokenizer update_epoch_batch_itr
    update_freq update_ordered_indices_seed use_bmuf use_sharded_state user_dir validate_after_updates
    validate_interval validate_interval_updates wandb_project workers write_checkpoints_asynchronously zero_sharding
    """.split()
)
OPTIMIZATION = set(
    """
    adadelta_eps adadelta_rho adafactor_eps adam_betas adam_eps adamax_betas adamax_eps anneal_eps average_sync
    beta1 block_lr block_momentum clip_threshold ddp_backend decay_rate decay_steps distributed_world_size
    dynamic_groups end_learning_rate epoch2lr final_lr_scale force_anneal fp16_adam_stats global_sync_iter groups
    hold_steps ignore_prefix_size init_lr_scale label_smoothing lamb_betas lamb_eps lr lr_deacy_period lr_decay
    lr_patience lr_period_updates lr_scheduler lr_shrink lr_threshold max_lr max_update
    maximize_best_checkpoint_metric min_lr momentum no_bias_correction optimizer phase_ratio power relative_step
    report_accuracy scale_parameter sentence_avg shrink_min t_mult total_num_update update2lr use_nbm use_old_adam
    warmup_init warmup_init_lr warmup_iterations warmup_steps warmup_updates weight_decay
    """.split()
)
DATA = set(
    """
    baseline_model baseline_model_langs batch_size batch_size_valid bert_score_lang bpe_add_prefix_space bpe_cased
    bpe_codes bpe_merges bpe_separator bpe_vocab bpe_vocab_file data data_buffer_size dataset_impl future_target
    gpt2_encoder_json gpt2_vocab_bpe lang_to_offline_shard_ratio langs lazy_load max_source_positions
    moses_no_dash_splits moses_no_escape moses_source_lang moses_target_lang multilang_sampling_alpha
    pad_to_fixed_bsz pad_to_fixed_length plasma_path raw_text sacrebleu_char_level sacrebleu_lowercase
    sacrebleu_tokenizer sample_break_mode seed sentencepiece_alpha sentencepiece_enable_sampling sentencepiece_model
    sentencepiece_model_path sentencepiece_vocab shorten_data_split_list shorten_data_split_whitelist shorten_method
    source_lang target_lang train_subset use_plasma_view valid_subset wer_char_level wer_lowercase
    wer_remove_punct wer_tokenizer
    """.split()
)
EVALUATION = set(
    """
    beam beam_mt buffer_size constraints context_window decoding_format diverse_beam_groups diverse_beam_strength
    diversity_rate eos eos_prob_threshold eos_token gen_subset input iter_decode_eos_penalty iter_decode_force_max_iter
    iter_decode_max_iter iter_decode_with_beam iter_decode_with_external_reranker lenpen lenpen_mt lm_path lm_weight
    match_source_len max_len_a max_len_a_mt max_len_b max_len_b_mt min_len model_overrides nbest no_beamable_mm
    no_early_stop no_repeat_ngram_size no_seed_provided num_shards output_word_probs output_word_stats pad path
    post_process prefix_size print_alignment print_step quiet remove_bpe replace_unk results_path retain_dropout
    retain_dropout_modules retain_iter_history sacrebleu sample_without_replacement sampling sampling_temperature
    sampling_topk sampling_topp score_reference shard_id softmax_batch temperature unk unk_replace_dict unkpen
    unnormalized
    """.split()
)
