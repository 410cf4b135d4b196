"""Small models of many families of transformers, with random weights, for ``bench/outside.py``.

transformers comes with ``pip install --no-deps transformers huggingface_hub tokenizers regex`` and what they import.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from outside_torch import MASK, Given, Made, stand_ins
from outside_torch import make as made_all

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
WORDS = Given((2, 12), 90, "input_ids")
PRESENT = Given((2, 12), MASK, "attention_mask")
TEXT = (WORDS, PRESENT)
PICTURE = (Given((2, 3, 32, 32), name="pixel_values"),)
WAVE = (Given((2, 2000), name="input_values"),)
Row = tuple[str, dict[str, Any], tuple[Given, ...]]

_BERT: dict[str, Any] = {
    "vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40,
    "max_position_embeddings": 40,
}  # fmt: skip
_LLAMA = {**_BERT, "num_key_value_heads": 2, "head_dim": 8, "use_cache": False}
_VIT: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40, "image_size": 32,
    "patch_size": 8,
}  # fmt: skip
_BART: dict[str, Any] = {
    "vocab_size": 99, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 40, "decoder_ffn_dim": 40, "max_position_embeddings": 40,
    "use_cache": False,
}  # fmt: skip
_T5: dict[str, Any] = {
    "vocab_size": 99, "d_model": 32, "d_kv": 8, "d_ff": 40, "num_layers": 2, "num_heads": 4, "use_cache": False,
}  # fmt: skip
_SPEECH: dict[str, Any] = {
    "vocab_size": 20, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40,
    "conv_dim": (16, 16, 16), "conv_stride": (5, 4, 4), "conv_kernel": (10, 5, 5), "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2, "num_feat_extract_layers": 3,
}  # fmt: skip
_BOTH = (WORDS, Given((2, 7), 90, "decoder_input_ids"))

ENCODERS: Mapping[str, Row] = {
    "bert": ("BertForMaskedLM", _BERT, TEXT),
    "bert_classifier": ("BertForSequenceClassification", _BERT, TEXT),
    "roberta": ("RobertaForTokenClassification", _BERT, TEXT),
    "xlm_roberta": ("XLMRobertaForQuestionAnswering", _BERT, TEXT),
    "camembert": ("CamembertModel", _BERT, TEXT),
    "albert": ("AlbertForMaskedLM", {**_BERT, "embedding_size": 16}, TEXT),
    "electra": ("ElectraForPreTraining", {**_BERT, "embedding_size": 16}, TEXT),
    "deberta": (
        "DebertaForMaskedLM",
        {**_BERT, "relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_biased_input": False}, TEXT),
    "deberta_v2": (
        "DebertaV2ForTokenClassification",
        {**_BERT, "relative_attention": True, "position_buckets": 8, "pos_att_type": ["c2p", "p2c"],
         "norm_rel_ebd": "layer_norm", "share_att_key": True, "position_biased_input": False}, TEXT),
    "distilbert": (
        "DistilBertForSequenceClassification",
        {"vocab_size": 99, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 40, "max_position_embeddings": 40},
        TEXT),
    "mobilebert": (
        "MobileBertForMaskedLM",
        {**_BERT, "embedding_size": 32, "intra_bottleneck_size": 16, "true_hidden_size": 16,
         "num_feedforward_networks": 2}, TEXT),
    "squeezebert": (
        "SqueezeBertForMaskedLM",
        {**_BERT, "embedding_size": 32, "q_groups": 2, "k_groups": 2, "v_groups": 2, "post_attention_groups": 2,
         "intermediate_groups": 2, "output_groups": 2}, TEXT),
    "xlnet": (
        "XLNetLMHeadModel",
        {"vocab_size": 99, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 40, "use_mems_eval": False,
         "mem_len": None}, TEXT),
    "xlm": ("XLMWithLMHeadModel", {"vocab_size": 99, "emb_dim": 32, "n_layers": 2, "n_heads": 4,
                                   "max_position_embeddings": 40}, TEXT),
    "flaubert": ("FlaubertModel", {"vocab_size": 99, "emb_dim": 32, "n_layers": 2, "n_heads": 4,
                                   "max_position_embeddings": 40}, TEXT),
    "ernie": ("ErnieModel", _BERT, TEXT),
    "nystromformer": ("NystromformerModel", {**_BERT, "num_landmarks": 4, "segment_means_seq_len": 12}, TEXT),
    "yoso": ("YosoModel", {**_BERT, "use_expectation": True}, TEXT),
    "fnet": ("FNetForMaskedLM", _BERT, (WORDS,)),
    "longformer": ("LongformerModel", {**_BERT, "attention_window": [4, 4]}, TEXT),
    "big_bird": ("BigBirdModel", {**_BERT, "attention_type": "original_full"}, TEXT),
    "funnel": (
        "FunnelModel",
        {"vocab_size": 99, "block_sizes": [1, 1], "num_decoder_layers": 1, "d_model": 32, "n_head": 4, "d_head": 8,
         "d_inner": 40}, TEXT),
    "canine": ("CanineModel", {**_BERT, "num_hash_buckets": 50, "downsampling_rate": 2, "local_transformer_stride": 8,
                               "upsampling_kernel_size": 2}, TEXT),
    "convbert": ("ConvBertModel", {**_BERT, "embedding_size": 16, "num_groups": 1, "conv_kernel_size": 3}, TEXT),
    "rembert": ("RemBertModel", {**_BERT, "input_embedding_size": 16, "output_embedding_size": 16}, TEXT),
    "roformer": ("RoFormerModel", {**_BERT, "embedding_size": 32}, TEXT),
    "roc_bert": ("RoCBertModel", {**_BERT, "enable_pronunciation": False, "enable_shape": False}, TEXT),
    "ibert": ("IBertModel", _BERT, TEXT),
    "mpnet": ("MPNetForMaskedLM", _BERT, TEXT),
    "megatron_bert": ("MegatronBertModel", _BERT, TEXT),
    "modernbert": ("ModernBertForMaskedLM", {**_BERT, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
                                             "cls_token_id": 1, "sep_token_id": 2, "local_attention": 8,
                                             "attn_implementation": "sdpa"}, TEXT),
    "nomic_bert": ("NomicBertModel", _BERT, TEXT),
    "eurobert": ("EuroBertModel", {**_LLAMA, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}, TEXT),
    "esm": ("EsmModel", {**_BERT, "pad_token_id": 1, "position_embedding_type": "rotary"}, TEXT),
    "reformer": (
        "ReformerModel",
        {"vocab_size": 99, "hidden_size": 32, "attention_head_size": 8, "num_attention_heads": 4,
         "feed_forward_size": 40, "attn_layers": ["local", "local"], "axial_pos_shape": [4, 3],
         "axial_pos_embds_dim": [16, 16], "local_attn_chunk_length": 4, "is_decoder": False, "num_hidden_layers": 2,
         "max_position_embeddings": 12}, TEXT),
    "layoutlm": ("LayoutLMModel", _BERT, (*TEXT, Given((2, 12, 4), 30, "bbox"))),
    "splinter": ("SplinterModel", _BERT, TEXT),
    "luke": ("LukeModel", {**_BERT, "entity_vocab_size": 20, "entity_emb_size": 16}, TEXT),
}  # fmt: skip
DECODERS: Mapping[str, Row] = {
    "gpt2": ("GPT2LMHeadModel", {"vocab_size": 99, "n_positions": 40, "n_embd": 32, "n_layer": 2, "n_head": 4,
                                 "use_cache": False}, TEXT),
    "openai_gpt": ("OpenAIGPTLMHeadModel", {"vocab_size": 99, "n_positions": 40, "n_embd": 32, "n_layer": 2,
                                            "n_head": 4}, TEXT),
    "gpt_neo": ("GPTNeoForCausalLM", {"vocab_size": 99, "hidden_size": 32, "num_layers": 2, "num_heads": 4,
                                      "attention_types": [[["global", "local"], 1]], "window_size": 4,
                                      "max_position_embeddings": 40, "use_cache": False}, TEXT),
    "gpt_neox": ("GPTNeoXForCausalLM", {**_BERT, "use_cache": False}, TEXT),
    "gptj": ("GPTJForCausalLM", {"vocab_size": 99, "n_positions": 40, "n_embd": 32, "n_layer": 2, "n_head": 4,
                                 "rotary_dim": 4, "use_cache": False}, TEXT),
    "gpt_bigcode": ("GPTBigCodeForCausalLM", {"vocab_size": 99, "n_positions": 40, "n_embd": 32, "n_layer": 2,
                                              "n_head": 4, "use_cache": False}, TEXT),
    "codegen": ("CodeGenForCausalLM", {"vocab_size": 99, "n_positions": 40, "n_embd": 32, "n_layer": 2, "n_head": 4,
                                       "rotary_dim": 4, "use_cache": False}, TEXT),
    "ctrl": ("CTRLLMHeadModel", {"vocab_size": 99, "n_positions": 40, "n_embd": 32, "n_layer": 2, "n_head": 4,
                                 "dff": 40, "use_cache": False}, TEXT),
    "opt": ("OPTForCausalLM", {**_BERT, "ffn_dim": 40, "word_embed_proj_dim": 32, "use_cache": False}, TEXT),
    "llama": ("LlamaForCausalLM", _LLAMA, TEXT),
    "mistral": ("MistralForCausalLM", {**_LLAMA, "sliding_window": 5}, TEXT),
    "mixtral": ("MixtralForCausalLM", {**_LLAMA, "num_local_experts": 4}, TEXT),
    "qwen2": ("Qwen2ForCausalLM", _LLAMA, TEXT),
    "qwen2_moe": ("Qwen2MoeForCausalLM", {**_LLAMA, "num_experts": 4, "num_experts_per_tok": 2,
                                          "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16}, TEXT),
    "qwen3": ("Qwen3ForCausalLM", _LLAMA, TEXT),
    "gemma": ("GemmaForCausalLM", _LLAMA, TEXT),
    "gemma2": ("Gemma2ForCausalLM", {**_LLAMA, "sliding_window": 5, "query_pre_attn_scalar": 8}, TEXT),
    "gemma3_text": ("Gemma3ForCausalLM", {**_LLAMA, "sliding_window": 5, "query_pre_attn_scalar": 8}, TEXT),
    "phi": ("PhiForCausalLM", {**_BERT, "use_cache": False}, TEXT),
    "phi3": ("Phi3ForCausalLM", {**_LLAMA, "pad_token_id": 0}, TEXT),
    "phimoe": ("PhimoeForCausalLM", {**_LLAMA, "num_local_experts": 4}, TEXT),
    "bloom": ("BloomForCausalLM", {"vocab_size": 99, "hidden_size": 32, "n_layer": 2, "n_head": 4,
                                   "use_cache": False}, TEXT),
    "falcon": ("FalconForCausalLM", {**_BERT, "use_cache": False}, TEXT),
    "falcon_alibi": ("FalconForCausalLM", {**_BERT, "alibi": True, "new_decoder_architecture": False,
                                           "use_cache": False}, TEXT),
    "mpt": ("MptForCausalLM", {"vocab_size": 99, "d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 40,
                               "use_cache": False}, TEXT),
    "stablelm": ("StableLmForCausalLM", _LLAMA, TEXT),
    "starcoder2": ("Starcoder2ForCausalLM", _LLAMA, TEXT),
    "olmo": ("OlmoForCausalLM", _LLAMA, TEXT),
    "olmo2": ("Olmo2ForCausalLM", _LLAMA, TEXT),
    "olmoe": ("OlmoeForCausalLM", {**_LLAMA, "num_experts": 4, "num_experts_per_tok": 2}, TEXT),
    "cohere": ("CohereForCausalLM", _LLAMA, TEXT),
    "granite": ("GraniteForCausalLM", _LLAMA, TEXT),
    "glm": ("GlmForCausalLM", {**_LLAMA, "pad_token_id": 0}, TEXT),
    "nemotron": ("NemotronForCausalLM", _LLAMA, TEXT),
    "smollm3": ("SmolLM3ForCausalLM", {**_LLAMA, "pad_token_id": 0}, TEXT),
    "persimmon": ("PersimmonForCausalLM", {**_BERT, "use_cache": False}, TEXT),
    "deepseek_v3": (
        "DeepseekV3ForCausalLM",
        {**_BERT, "num_key_value_heads": 4, "use_cache": False, "q_lora_rank": 16, "kv_lora_rank": 8,
         "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 8, "n_routed_experts": 4, "n_group": 2,
         "topk_group": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "first_k_dense_replace": 1}, TEXT),
    "gpt_oss": ("GptOssForCausalLM", {**_LLAMA, "num_local_experts": 4, "num_experts_per_tok": 2,
                                      "sliding_window": 5}, TEXT),
    "mamba": ("MambaForCausalLM", {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4,
                                   "use_cache": False}, (WORDS,)),
    "mamba2": ("Mamba2ForCausalLM", {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4,
                                     "num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 4,
                                     "use_cache": False}, (WORDS,)),
    "falcon_mamba": ("FalconMambaForCausalLM", {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2,
                                                "state_size": 4, "use_cache": False}, (WORDS,)),
    "rwkv": ("RwkvForCausalLM", {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "context_length": 40,
                                 "use_cache": False}, (WORDS,)),
    "recurrent_gemma": ("RecurrentGemmaForCausalLM", {**_LLAMA, "lru_width": 32, "num_hidden_layers": 3,
                                                      "attention_window_size": 5}, TEXT),
    "xglm": ("XGLMForCausalLM", {"vocab_size": 99, "d_model": 32, "num_layers": 2, "attention_heads": 4,
                                 "ffn_dim": 40, "max_position_embeddings": 40, "use_cache": False}, TEXT),
    "biogpt": ("BioGptForCausalLM", {**_BERT, "use_cache": False}, TEXT),
}  # fmt: skip
PAIRS: Mapping[str, Row] = {
    "t5_encoder": ("T5EncoderModel", _T5, TEXT),
    "t5": ("T5ForConditionalGeneration", _T5, _BOTH),
    "umt5": ("UMT5EncoderModel", _T5, TEXT),
    "longt5": ("LongT5EncoderModel", {**_T5, "local_radius": 3, "encoder_attention_type": "local"}, TEXT),
    "switch": ("SwitchTransformersEncoderModel", {**_T5, "num_experts": 4, "expert_capacity": 16}, TEXT),
    "bart": ("BartForConditionalGeneration", _BART, _BOTH),
    "mbart": ("MBartModel", _BART, _BOTH),
    "pegasus": ("PegasusForConditionalGeneration", _BART, _BOTH),
    "blenderbot": ("BlenderbotModel", _BART, _BOTH),
    "marian": ("MarianMTModel", {**_BART, "pad_token_id": 0, "decoder_start_token_id": 0}, _BOTH),
    "m2m_100": ("M2M100Model", _BART, _BOTH),
    "led": ("LEDModel", {**_BART, "attention_window": [4, 4], "max_encoder_position_embeddings": 40,
                         "max_decoder_position_embeddings": 40}, _BOTH),
    "prophetnet": ("ProphetNetModel", {
        "vocab_size": 99, "hidden_size": 32, "num_encoder_layers": 2, "num_decoder_layers": 2, "encoder_ffn_dim": 40,
        "decoder_ffn_dim": 40, "num_encoder_attention_heads": 4, "num_decoder_attention_heads": 4,
        "max_position_embeddings": 40, "use_cache": False}, _BOTH),
}  # fmt: skip
PICTURES: Mapping[str, Row] = {
    "vit": ("ViTForImageClassification", _VIT, PICTURE),
    "deit": ("DeiTForImageClassificationWithTeacher", _VIT, PICTURE),
    "beit": ("BeitForImageClassification", {**_VIT, "use_relative_position_bias": True, "layer_scale_init_value": 0.1},
             PICTURE),
    "data2vec_vision": ("Data2VecVisionModel", {**_VIT, "use_shared_relative_position_bias": True}, PICTURE),
    "dinov2": ("Dinov2Model", {**_VIT, "mlp_ratio": 2}, PICTURE),
    "dinov2_registers": ("Dinov2WithRegistersModel", {**_VIT, "mlp_ratio": 2}, PICTURE),
    "dinov3_vit": ("DINOv3ViTModel", _VIT, PICTURE),
    "ijepa": ("IJepaModel", _VIT, PICTURE),
    "vit_msn": ("ViTMSNModel", _VIT, PICTURE),
    "yolos": ("YolosForObjectDetection", {**_VIT, "image_size": [32, 32], "num_detection_tokens": 5}, PICTURE),
    "swin": ("SwinForImageClassification", {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [1, 2],
                                            "num_heads": [2, 4], "window_size": 4}, PICTURE),
    "swinv2": ("Swinv2ForImageClassification", {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [1, 2],
                                                "num_heads": [2, 4], "window_size": 4}, PICTURE),
    "swin2sr": ("Swin2SRForImageSuperResolution", {"image_size": 16, "embed_dim": 16, "depths": [2, 1],
                                                   "num_heads": [2, 2], "window_size": 4, "upscale": 2}, PICTURE),
    "donut_swin": ("DonutSwinModel", {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [1, 2],
                                      "num_heads": [2, 4], "window_size": 4}, PICTURE),
    "segformer": ("SegformerForSemanticSegmentation", {"num_encoder_blocks": 4, "hidden_sizes": [8, 16, 16, 32],
                                                       "depths": [1, 1, 1, 1], "num_attention_heads": [1, 2, 2, 4],
                                                       "decoder_hidden_size": 16}, PICTURE),
    "pvt": ("PvtForImageClassification", {"image_size": 32, "hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1],
                                          "num_attention_heads": [1, 2, 2, 4]}, PICTURE),
    "pvt_v2": ("PvtV2ForImageClassification", {"image_size": 32, "hidden_sizes": [8, 16, 16, 32],
                                               "depths": [1, 1, 1, 1], "num_attention_heads": [1, 2, 2, 4]}, PICTURE),
    "glpn": ("GLPNForDepthEstimation", {"hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1],
                                        "num_attention_heads": [1, 2, 2, 4], "decoder_hidden_size": 16}, PICTURE),
    "mobilevit": ("MobileViTForImageClassification", {"image_size": 32, "hidden_sizes": [12, 16, 20],
                                                      "neck_hidden_sizes": [8, 8, 16, 16, 20, 24, 32],
                                                      "num_attention_heads": 4}, PICTURE),
    "mobilevitv2": ("MobileViTV2ForSemanticSegmentation", {"image_size": 64, "width_multiplier": 0.25},
                    (Given((2, 3, 64, 64), name="pixel_values"),)),
    "mobilenet_v1": ("MobileNetV1ForImageClassification", {"depth_multiplier": 0.25, "min_depth": 8}, PICTURE),
    "mobilenet_v2": ("MobileNetV2ForSemanticSegmentation", {"depth_multiplier": 0.25},
                     (Given((2, 3, 64, 64), name="pixel_values"),)),
    "efficientnet": ("EfficientNetForImageClassification", {"width_coefficient": 0.25, "depth_coefficient": 0.3,
                                                            "hidden_dim": 320}, PICTURE),
    "convnext": ("ConvNextForImageClassification", {"hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 2, 1]}, PICTURE),
    "convnextv2": ("ConvNextV2ForImageClassification", {"hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 2, 1]},
                   PICTURE),
    "resnet": ("ResNetForImageClassification", {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 2]},
               PICTURE),
    "regnet": ("RegNetForImageClassification", {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 2],
                                                "groups_width": 4}, PICTURE),
    "bit": ("BitForImageClassification", {"embedding_size": 8, "hidden_sizes": [8, 16, 16, 32],
                                          "depths": [1, 1, 2, 1], "num_groups": 2}, PICTURE),
    "hgnet_v2": ("HGNetV2ForImageClassification", {}, (Given((2, 3, 64, 64), name="pixel_values"),)),
    "levit": ("LevitForImageClassification", {"image_size": 64, "hidden_sizes": [16, 24, 32],
                                              "num_attention_heads": [2, 3, 4], "depths": [1, 1, 1],
                                              "key_dim": [8, 8, 8]}, (Given((2, 3, 64, 64), name="pixel_values"),)),
    "cvt": ("CvtForImageClassification", {"embed_dim": [8, 16, 32], "num_heads": [1, 2, 4], "depth": [1, 1, 2]},
            PICTURE),
    "focalnet": ("FocalNetForImageClassification", {"image_size": 32, "patch_size": 2, "embed_dim": 16,
                                                    "depths": [1, 2], "focal_levels": [2, 2],
                                                    "focal_windows": [3, 3]}, PICTURE),
    "poolformer": ("PoolFormerForImageClassification", {"hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1]},
                   PICTURE),
    "dpt": ("DPTForDepthEstimation", {**_VIT, "backbone_out_indices": [0, 1, 0, 1], "neck_hidden_sizes": [8, 8, 8, 8],
                                      "fusion_hidden_size": 8, "backbone_config": None}, PICTURE),
    "depth_anything": ("DepthAnythingForDepthEstimation", {
        "neck_hidden_sizes": [8, 8, 8, 8], "reassemble_hidden_size": 32, "fusion_hidden_size": 8,
        "head_hidden_size": 8, "patch_size": 8, "backbone_config": {
            "model_type": "dinov2", **_VIT, "num_hidden_layers": 4, "reshape_hidden_states": False,
            "out_features": ["stage1", "stage2", "stage3", "stage4"]}}, PICTURE),
    "upernet": ("UperNetForSemanticSegmentation", {
        "hidden_size": 16, "auxiliary_channels": 8, "auxiliary_in_channels": 16, "backbone_config": {
            "model_type": "convnext", "hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 2, 1],
            "out_features": ["stage1", "stage2", "stage3", "stage4"]}},
        (Given((2, 3, 64, 64), name="pixel_values"),)),
    "detr": ("DetrForObjectDetection", {
        **_BART, "num_queries": 5, "use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None,
        "backbone_config": {"model_type": "resnet", "embedding_size": 8, "hidden_sizes": [8, 16, 16, 32],
                            "depths": [1, 1, 1, 1], "out_features": ["stage4"]}},
        (Given((2, 3, 64, 64), name="pixel_values"),)),
    "conditional_detr": ("ConditionalDetrForObjectDetection", {
        **_BART, "num_queries": 5, "use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None,
        "backbone_config": {"model_type": "resnet", "embedding_size": 8, "hidden_sizes": [8, 16, 16, 32],
                            "depths": [1, 1, 1, 1], "out_features": ["stage4"]}},
        (Given((2, 3, 64, 64), name="pixel_values"),)),
    "deformable_detr": ("DeformableDetrForObjectDetection", {
        **_BART, "num_queries": 5, "use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None,
        "num_feature_levels": 2, "encoder_n_points": 2, "decoder_n_points": 2,
        "backbone_config": {"model_type": "resnet", "embedding_size": 8, "hidden_sizes": [8, 16, 16, 32],
                            "depths": [1, 1, 1, 1], "out_features": ["stage3", "stage4"]}},
        (Given((2, 3, 64, 64), name="pixel_values"),)),
    "rt_detr": ("RTDetrForObjectDetection", {
        "d_model": 32, "encoder_hidden_dim": 32, "encoder_in_channels": [16, 16, 32], "num_queries": 5,
        "decoder_in_channels": [32, 32, 32], "encoder_ffn_dim": 40, "decoder_ffn_dim": 40, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "decoder_layers": 2, "backbone_config": {
            "model_type": "rt_detr_resnet", "embedding_size": 8, "hidden_sizes": [8, 16, 16, 32],
            "depths": [1, 1, 1, 1], "out_features": ["stage2", "stage3", "stage4"], "layer_type": "basic"}},
        (Given((2, 3, 64, 64), name="pixel_values"),)),
    "vitmatte": ("VitMatteForImageMatting", {
        "hidden_size": 32, "convstream_hidden_sizes": [8, 8, 8], "fusion_hidden_sizes": [16, 8, 8, 8],
        "backbone_config": {"model_type": "vitdet", **_VIT, "num_channels": 4, "pretrain_image_size": 32,
                            "out_features": ["stage2"]}}, (Given((2, 4, 32, 32), name="pixel_values"),)),
    "vitdet": ("VitDetModel", {**_VIT, "window_size": 2, "window_block_indices": [0], "pretrain_image_size": 32,
                               "use_relative_position_embeddings": True, "residual_block_indices": [1]}, PICTURE),
    "vitpose": ("VitPoseForPoseEstimation", {
        "scale_factor": 2, "use_simple_decoder": False, "backbone_config": {
            "model_type": "vitpose_backbone", **_VIT, "image_size": [32, 32], "patch_size": [8, 8],
            "out_features": ["stage2"]}},
        PICTURE),
    "superpoint": ("SuperPointForKeypointDetection", {"encoder_hidden_sizes": [8, 8, 8, 16], "decoder_hidden_size": 16,
                                                      "descriptor_decoder_dim": 16}, PICTURE),
    "timesformer": ("TimesformerForVideoClassification", {**_VIT, "num_frames": 3},
                    (Given((2, 3, 3, 32, 32), name="pixel_values"),)),
    "videomae": ("VideoMAEForVideoClassification", {**_VIT, "num_frames": 4},
                 (Given((2, 4, 3, 32, 32), name="pixel_values"),)),
    "vivit": ("VivitForVideoClassification", {**_VIT, "num_frames": 4, "tubelet_size": [2, 8, 8]},
              (Given((2, 4, 3, 32, 32), name="pixel_values"),)),
    "hiera": ("HieraForImageClassification", {"image_size": [32, 32], "embed_dim": 8, "patch_size": [3, 3],
                                              "patch_stride": [2, 2], "patch_padding": [1, 1], "depths": [1, 1, 1],
                                              "num_heads": [1, 2, 4], "masked_unit_size": [4, 4]}, PICTURE),
    "efficientformer_like_swiftformer": ("SwiftFormerForImageClassification", {
        "image_size": 64, "embed_dims": [8, 16, 16, 32], "depths": [1, 1, 1, 1]},
        (Given((2, 3, 64, 64), name="pixel_values"),)),
    "clip_vision": ("CLIPVisionModelWithProjection", {**_VIT, "projection_dim": 16}, PICTURE),
    "siglip_vision": ("SiglipVisionModel", _VIT, PICTURE),
    "perceiver": ("PerceiverForImageClassificationConvProcessing", {
        "num_latents": 8, "d_latents": 16, "num_blocks": 1, "num_self_attends_per_block": 2,
        "num_self_attention_heads": 2, "num_cross_attention_heads": 1, "image_size": 32},
        (Given((1, 3, 224, 224), name="pixel_values"),)),
}  # fmt: skip
MIXED: Mapping[str, Row] = {
    "clip_text": ("CLIPTextModelWithProjection", {**_BERT, "projection_dim": 16, "eos_token_id": 98,
                                                  "bos_token_id": 97, "pad_token_id": 1}, TEXT),
    "clip": ("CLIPModel", {"text_config": {**_BERT, "eos_token_id": 98}, "vision_config": _VIT, "projection_dim": 16},
             (*TEXT, *PICTURE)),
    "siglip": ("SiglipModel", {"text_config": _BERT, "vision_config": _VIT}, (WORDS, *PICTURE)),
    "align_text": ("AlignTextModel", _BERT, TEXT),
    "chinese_clip": ("ChineseCLIPTextModel", _BERT, TEXT),
    "blip": ("BlipForImageTextRetrieval", {"text_config": {**_BERT, "encoder_hidden_size": 32},
                                           "vision_config": _VIT, "image_text_hidden_size": 16}, (WORDS, *PICTURE)),
    "vilt": ("ViltModel", {**_BERT, "image_size": 32, "patch_size": 8}, (*TEXT, *PICTURE)),
    "layoutlmv3": ("LayoutLMv3Model", {**_BERT, "input_size": 32, "patch_size": 8, "coordinate_size": 6,
                                       "shape_size": 4, "max_2d_position_embeddings": 40},
                   (*TEXT, Given((2, 12, 4), 30, "bbox"), *PICTURE)),
    "flava_text": ("FlavaTextModel", _BERT, TEXT),
    "wav2vec2": ("Wav2Vec2ForCTC", _SPEECH, WAVE),
    "wav2vec2_layer_norm": ("Wav2Vec2Model", {**_SPEECH, "feat_extract_norm": "layer", "conv_bias": True,
                                              "do_stable_layer_norm": True}, WAVE),
    "wav2vec2_conformer": ("Wav2Vec2ConformerModel", {**_SPEECH, "position_embeddings_type": "rotary"}, WAVE),
    "hubert": ("HubertModel", _SPEECH, WAVE),
    "wavlm": ("WavLMModel", {**_SPEECH, "num_buckets": 16, "max_bucket_distance": 20}, WAVE),
    "unispeech_sat": ("UniSpeechSatModel", _SPEECH, WAVE),
    "sew": ("SEWModel", {**_SPEECH, "squeeze_factor": 2}, WAVE),
    "data2vec_audio": ("Data2VecAudioModel", {**_SPEECH, "conv_pos_kernel_size": 5}, WAVE),
    "audio_spectrogram": ("ASTForAudioClassification", {**_VIT, "max_length": 40, "num_mel_bins": 16, "patch_size": 8,
                                                        "time_stride": 4, "frequency_stride": 4},
                          (Given((2, 40, 16), name="input_values"),)),
    "whisper_encoder": ("WhisperForAudioClassification", {**_BART, "num_mel_bins": 16, "max_source_positions": 20},
                        (Given((2, 16, 40), name="input_features"),)),
    "whisper": ("WhisperForConditionalGeneration", {**_BART, "num_mel_bins": 16, "max_source_positions": 20,
                                                    "max_target_positions": 20, "pad_token_id": 0,
                                                    "bos_token_id": 1, "eos_token_id": 2,
                                                    "decoder_start_token_id": 1},
                (Given((2, 16, 40), name="input_features"), Given((2, 7), 90, "decoder_input_ids"))),
    "speech_to_text": ("Speech2TextModel", {**_BART, "input_feat_per_channel": 16, "conv_channels": 16,
                                            "max_source_positions": 40, "max_target_positions": 40},
                       (Given((2, 40, 16), name="input_features"), Given((2, 7), 90, "decoder_input_ids"))),
    "encodec": ("EncodecModel", {"num_filters": 8, "hidden_size": 16, "upsampling_ratios": [4, 2],
                                 "codebook_size": 16, "codebook_dim": 16, "chunk_length_s": None},
                (Given((1, 1, 800), name="input_values"),)),
    "vits": ("VitsModel", {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 1, "ffn_dim": 40, "flow_size": 32,
                           "spectrogram_bins": 9, "upsample_initial_channel": 32, "depth_separable_num_layers": 1,
                           "prior_encoder_num_flows": 1, "posterior_encoder_num_wavenet_layers": 1},
             (Given((1, 12), 90, "input_ids"),)),
    "patchtst": ("PatchTSTForPrediction", {"num_input_channels": 3, "context_length": 24, "prediction_length": 6,
                                           "patch_length": 6, "patch_stride": 6, "d_model": 16, "ffn_dim": 20,
                                           "num_hidden_layers": 2, "num_attention_heads": 4},
                 (Given((2, 24, 3), name="past_values"),)),
    "patchtsmixer": ("PatchTSMixerForPrediction", {"num_input_channels": 3, "context_length": 24,
                                                   "prediction_length": 6, "patch_length": 6, "patch_stride": 6,
                                                   "d_model": 16, "num_layers": 2},
                     (Given((2, 24, 3), name="past_values"),)),
    "autoformer": ("AutoformerModel", {"prediction_length": 6, "context_length": 12, "lags_sequence": [1, 2],
                                       "input_size": 1, "num_time_features": 2, "d_model": 16, "encoder_layers": 1,
                                       "decoder_layers": 1, "encoder_attention_heads": 2,
                                       "decoder_attention_heads": 2, "encoder_ffn_dim": 20, "decoder_ffn_dim": 20,
                                       "use_cache": False},
                   (Given((2, 14), name="past_values"), Given((2, 14, 2), name="past_time_features"),
                    Given((2, 14), MASK, name="past_observed_mask"), Given((2, 6), name="future_values"),
                    Given((2, 6, 2), name="future_time_features"))),
    "informer": ("InformerModel", {"prediction_length": 6, "context_length": 12, "lags_sequence": [1, 2],
                                   "input_size": 1, "num_time_features": 2, "d_model": 16, "encoder_layers": 1,
                                   "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
                                   "encoder_ffn_dim": 20, "decoder_ffn_dim": 20, "use_cache": False,
                                   "attention_type": "full"},
                 (Given((2, 14), name="past_values"), Given((2, 14, 2), name="past_time_features"),
                  Given((2, 14), MASK, name="past_observed_mask"), Given((2, 6), name="future_values"),
                  Given((2, 6, 2), name="future_time_features"))),
    "decision_transformer": ("DecisionTransformerModel", {"state_dim": 5, "act_dim": 3, "hidden_size": 32,
                                                          "n_layer": 2, "n_head": 4, "max_ep_len": 20,
                                                          "n_positions": 64, "use_cache": False},
                             (Given((2, 4, 5), name="states"), Given((2, 4, 3), name="actions"),
                              Given((2, 4, 1), name="rewards"), Given((2, 4, 1), name="returns_to_go"),
                              Given((2, 4), 10, name="timesteps"), Given((2, 4), MASK, name="attention_mask"))),
}  # fmt: skip


def makers() -> Mapping[str, Callable[[], Made]]:
    """Names and what makes a model from its settings."""
    import transformers

    def made(kind: str, settings: dict[str, Any], inputs: tuple[Given, ...]) -> Callable[[], Made]:
        def build() -> Made:
            found = getattr(transformers, kind)
            config = found.config_class(**settings)
            return Made(found(config), inputs)

        return build

    return {name: made(*row) for table in (ENCODERS, DECODERS, PAIRS, PICTURES, MIXED) for name, row in table.items()}


def make(folder: Path, names: list[str]) -> None:
    """Each model that is not there."""
    kept = stand_ins()
    made_all(folder, names, makers())
    kept.clear()
