"""Models of transformers that one set of small settings makes, for ``bench/outside.py``: a class of each family.

What transformers needs is told in ``bench/outside_transformers.py``, which has the families with settings of their own.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from outside_torch import MASK, Given, Made, stand_ins
from outside_torch import make as made_all

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

TEXT = (Given((2, 12), 90, "input_ids"), Given((2, 12), MASK, "attention_mask"))
TEXTS = """
    AfmoeForCausalLM Aimv2TextModel AltCLIPTextModel ApertusForCausalLM Apertus1p5TextForCausalLM ArceeForCausalLM
    AriaTextForCausalLM BailingHybridForCausalLM BambaForCausalLM BarkSemanticModel BeamForCausalLM BitNetForCausalLM
    BlenderbotSmallForCausalLM ClapTextModel CLIPSegTextModel ClvpForCausalLM Cohere2ForCausalLM Cohere2MoeForCausalLM
    CpmAntForCausalLM CwmForCausalLM DeepseekV4ForCausalLM DiffLlamaForCausalLM DogeForCausalLM DoryForCausalLM
    Emu3ForCausalLM Ernie4_5ForCausalLM Ernie4_5_MoeForCausalLM Exaone4ForCausalLM ExaoneMoeForCausalLM
    FlexOlmoForCausalLM FlintForCausalLM Glm4ForCausalLM Glm4MoeForCausalLM GPTNeoXJapaneseForCausalLM
    Granite4VisionTextModel GraniteDoclingTextModel GraniteSWAForCausalLM GraniteMoeForCausalLM
    GraniteMoeSWAForCausalLM GraniteMoeHybridForCausalLM GraniteMoeSharedForCausalLM GroupViTTextModel GteModel
    HeliumForCausalLM HiggsAudioV2Model HrmTextForCausalLM HunYuanDenseV1ForCausalLM HunYuanMoEV1ForCausalLM
    HYV3ForCausalLM HYV4ForCausalLM HyperCLOVAXForCausalLM ImageGPTModel InklingForCausalLM InstructBlipQFormerModel
    InstructBlipVideoQFormerModel Jais2ForCausalLM JambaForCausalLM JetMoeForCausalLM JinaEmbeddingsV3Model
    Kolibri1ForCausalLM LagunaForCausalLM LaraMiniForCausalLM Lfm2ForCausalLM Lfm3ForCausalLM Llama4ForCausalLM
    MarkupLMModel MellumForCausalLM MetaClip2TextModel MiMoV2FlashForCausalLM MiniMaxForCausalLM MiniMaxM2ForCausalLM
    MiniMaxM3VLForCausalLM MinistralForCausalLM Ministral3ForCausalLM MllamaForCausalLM ModernBertDecoderForCausalLM
    Molmo2TextModel MoshiForCausalLM MraModel MT5EncoderModel MuseGlimmerTextModel MuseSparkTextModel
    NanoChatForCausalLM NemotronHForCausalLM Olmo3ForCausalLM OlmoHybridForCausalLM OpenAIPrivacyFilterModel
    Owlv2TextModel OwlViTTextModel PPFormulaNetTextModel Qwen3_5ForCausalLM Qwen3_5MoeForCausalLM Qwen3MoeForCausalLM
    Qwen3NextForCausalLM Qwen3OmniMoeThinkerTextModel Qwen3VLTextModel Qwen3VLMoeTextModel Qwen4ExpForCausalLM
    RobertaPreLayerNormForCausalLM Sam3LiteTextTextModel SeedOssForCausalLM Siglip2TextModel SolarOpenForCausalLM
    Step3p7TextModel TapasModel Tipsv2TextModel TrOCRForCausalLM UltrabertModel UnlimitedOcrTextModel
    VaultGemmaForCausalLM VideoPrismTextModel VisualBertModel XCLIPTextModel XLMRobertaXLForCausalLM"""
OTHERS: Mapping[Given, str] = {
    Given((2, 3, 32, 32), name="pixel_values"): """
        Aimv2VisionModel AltCLIPVisionModel Blip2VisionModel CLIPSegVisionModel DINOv3ConvNextModel GitVisionModel
        Idefics3VisionTransformer InstructBlipVisionModel InstructBlipVideoVisionModel InternVLVisionModel
        JanusVisionModel MetaClip2VisionModel MLCDVisionModel Owlv2VisionModel OwlViTVisionModel
        Phi4MultimodalVisionModel PixioModel PixtralVisionModel PPLCNetBackbone PPLCNetV3Backbone PPLCNetV4Backbone
        PPOCRV5MobileDetForObjectDetection QianfanOCRVisionModel RfDetrDinov2Backbone Sam3ViTModel Sapiens2Model
        SLANetForTableRecognition SmolVLMVisionTransformer Tipsv2VisionBackbone UVDocBackbone""",
    Given((2, 3, 64, 64), name="pixel_values"): "LwDetrViTBackbone PPOCRV6TinyRecForTextRecognition",
    Given((2, 16, 40), name="input_features"): """
        GlmAsrEncoder MossTranscribeDiarizeAudioModel Qwen2AudioEncoder VoxtralEncoder VoxtralRealtimeEncoder""",
    Given((2, 40, 16), name="input_features"): """
        LasrEncoder Nemotron3_5TranscribeAsrAudioModel Nemotron3DiarizationAudioModel NemotronAsrStreamingEncoder
        ParakeetEncoder Wav2Vec2BertForAudioFrameClassification""",
    Given((2, 2000), name="input_values"): "SEWDForCTC UniSpeechForCTC",
    Given((2, 1, 2000), name="input_values"): "OmniASRAudioModel PocketTTSAudioTokenizerEncoderModel",
}
"""Classes by their one input: pictures, sounds' spectra, sounds."""
TINY: dict[str, Any] = {
    "vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40,
    "max_position_embeddings": 40, "num_key_value_heads": 2, "head_dim": 8, "use_cache": False, "sliding_window": 5,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "num_experts": 4, "num_local_experts": 4,
    "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16, "q_lora_rank": 16, "kv_lora_rank": 8, "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 8, "v_head_dim": 8, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1,
    "mamba_d_state": 4, "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_n_groups": 2, "mamba_chunk_size": 4,
    "mamba_num_heads": 8, "mamba_head_dim": 8, "mamba_expand": 2, "n_groups": 2, "chunk_size": 4, "ssm_state_size": 4,
    "state_size": 4, "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8,
    "linear_value_head_dim": 8, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 99, "num_heads": 8,
}  # fmt: skip
"""Settings of texts by their names in all families; a class takes those that its configuration has."""
SMALL: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40, "patch_size": 8,
    "num_channels": 3, "embed_dim": 16, "depths": [1, 1, 2, 1], "num_heads": 4, "hidden_sizes": [8, 16, 16, 32],
    "embed_dims": [8, 16, 16, 32], "embedding_size": 8, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 40, "decoder_ffn_dim": 40,
    "mlp_ratio": 2, "num_mel_bins": 16, "vocab_size": 20, "fusion_hidden_size": 8, "neck_hidden_sizes": [8, 8, 8, 8],
    "max_position_embeddings": 40, "max_source_positions": 20, "conv_dim": [16, 16, 16], "conv_stride": [5, 4, 4],
    "conv_kernel": [10, 5, 5], "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2,
    "num_feat_extract_layers": 3, "num_queries": 5, "feature_projection_input_dim": 16, "conv_depthwise_kernel_size": 5,
    "mask_feature_size": 8, "feature_size": 8, "hidden_dim": 32, "subsampling_conv_channels": 8,
    "subsampling_factor": 4, "window_size": 4, "num_key_value_heads": 4, "projection_dim": 16,
}  # fmt: skip
"""The same of pictures and sounds."""


def settings(config_class: Any, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """What of those settings a configuration has: one number for one, a list for a list."""
    usual = config_class()
    found = {}
    for name, value in wanted.items():
        kind = getattr(usual, name, ...)
        if kind is not ... and (isinstance(value, list) or not isinstance(kind, (list, tuple))):
            found[name] = float(value) if isinstance(kind, float) else value
    return found


def makers() -> Mapping[str, Callable[[], Made]]:
    """Names of classes, and what makes a model of one."""
    inputs: dict[str, tuple[Given, ...]] = dict.fromkeys(TEXTS.split(), TEXT)
    inputs |= {name: (given,) for given, names in OTHERS.items() for name in names.split()}
    return {name: partial(made, name, given) for name, given in inputs.items()}


def made(kind: str, inputs: tuple[Given, ...]) -> Made:
    """A small model of a class; a text model has no mask where it takes none."""
    import transformers

    found = getattr(transformers, kind)
    picture = inputs[0].name == "pixel_values"
    small = (TINY if inputs is TEXT else SMALL) | ({"image_size": inputs[0].shape[-1]} if picture else {})
    model = found(found.config_class(**settings(found.config_class, small)))
    takes = inspect.signature(model.forward).parameters
    return Made(model, [each for each in inputs if each.name in takes])


def make(folder: Path, names: list[str]) -> None:
    """Each model that is not there."""
    kept = stand_ins()
    made_all(folder, names, makers())
    kept.clear()
