"""One small model of each family of timm, as exported programs, for ``bench/outside.py``.

timm comes with ``pip install --no-deps timm torchvision==0.28.0 huggingface_hub`` and what that one imports.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from outside_torch import Given, Made, stand_ins
from outside_torch import make as made_all

SIDES = {
    64: """test_byobnet test_convnext test_convnext2 test_convnext3 test_efficientnet test_efficientnet_evos
        test_efficientnet_gn test_efficientnet_ln test_nfnet test_resnet test_mambaout gcresnext26ts
        poolformer_s12 poolformerv2_s12 convformer_s18 caformer_s18 convmixer_768_32 cpubone_b3
        cs3darknet_focus_s csatv2 cspnext_tiny densenet121 dla46_c dpn48b ese_vovnet19b_slim edgenext_xx_small
        efficientvit_b0 fasternet_t0 fastvit_t8 lcnet_035 mobilenetv3_small_050
        mobilenetv4_conv_small_035 focalnet_tiny_srf ghostnet_050 ghostnetv2_100 ghostnetv3_050 hardcorenas_a
        hgnetv2_b0 hrnet_w18_small inception_next_atto lcnetv2_small legacy_seresnet18
        legacy_xception lowformer_b0 mobilevit_xxs mobilevitv2_050 nextvit_small pvt_v2_b0 pvt_v2_b2_li rdnet_tiny
        regnetx_002 regnety_002 regnetz_005 regnetv_040 repghostnet_050 repvit_m0_9 res2net50_26w_4s resnest14d
        resnetv2_18 rexnet_100 rexnetr_200 selecsls42 sequencer2d_s shvit_s1 skresnet18 starnet_s1 swiftformer_xs
        tresnet_m vgg11_bn xception41 repvgg_a0 mobileone_s0 gernet_s eca_resnet33ts seresnext26d_32x4d
        wide_resnet50_2 resnetblur50 ecaresnet50t resnetrs50 mixnet_s tinynet_e fbnetc_100 mnasnet_small
        spnasnet_100 semnasnet_050 efficientnet_es_pruned efficientvim_m1 iformer_t
        efficientnet_lite0 tf_efficientnet_b0 efficientnet_es cs3sedarknet_l
        resnet18d mobilenetv5_base""",
    96: "inception_resnet_v2 inception_v3 inception_v4 nasnetalarge pnasnet5large",
    224: """efficientformer_l1 efficientformerv2_s0 efficientvit_m0 convit_tiny visformer_tiny tnt_s_legacy_patch16_224
        pit_ti_distilled_224 vit_tiny_r_s16_p8_224 tiny_vit_5m_224""",
}
"""Models that take any size, by the side of their picture, or that take one."""
SIZED = {
    64: """test_vit test_vit2 test_vit3 test_vit4 vit_tiny_patch16_224 deit_tiny_distilled_patch16_224
        deit3_small_patch16_224 beit_base_patch16_224 beitv2_base_patch16_224 cait_xxs24_224 coat_lite_tiny coat_tiny
        crossvit_tiny_240 eva02_tiny_patch14_224 gmlp_ti16_224 mixer_s32_224 resmlp_12_224 gmixer_12_224
        levit_128s levit_conv_128s mvitv2_tiny swin_tiny_patch4_window7_224 swinv2_tiny_window8_256
        swinv2_cr_tiny_224 twins_pcpvt_small twins_svt_small vitamin_small_224
        vit_relpos_small_patch16_224 vit_srelpos_small_patch16_224 xcit_nano_12_p16_224 volo_d1_224
        nest_tiny hiera_tiny_224 test_coatnet test_maxvit davit_tiny gcvit_xxtiny samvit_base_patch16
        vit_base_patch16_rope_224 vit_pe_core_tiny_patch16_384 naflexvit_base_patch16_gap vit_xsmall_patch16_clip_224
        vit_small_patch16_dinov3 vit_wee_patch16_reg1_gap_256 sam2_hiera_tiny botnet26t_256 lambda_resnet26t
        halonet26t deepseek_vit_412m gemma4_vit_167m qwen3_vit_88m""",
}
"""Those that are made for the side of their picture."""
SMALLER: Mapping[str, dict[str, Any]] = {
    "convmixer_768_32": {"depth": 4},
    "samvit_base_patch16": {"depth": 3, "global_attn_indexes": (1,), "window_size": 2},
    "beit_base_patch16_224": {"depth": 2, "embed_dim": 96, "num_heads": 4},
    "beitv2_base_patch16_224": {"depth": 2, "embed_dim": 96, "num_heads": 4},
    "vit_base_patch16_rope_224": {"depth": 2, "embed_dim": 96, "num_heads": 4},
    "naflexvit_base_patch16_gap": {"depth": 2, "embed_dim": 96, "num_heads": 4},
    "deit3_small_patch16_224": {"depth": 3},
    "vit_small_patch16_dinov3": {"depth": 3},
    "cait_xxs24_224": {"depth": 4},
    "eva02_tiny_patch14_224": {"patch_size": 16},
    "swin_tiny_patch4_window7_224": {"depths": (1, 1, 2, 1), "window_size": 2},
    "swinv2_tiny_window8_256": {"depths": (1, 1, 2, 1), "window_size": 2},
    "swinv2_cr_tiny_224": {"depths": (1, 1, 2, 1), "window_size": 2},
    "crossvit_tiny_240": {"img_scale": (1.0, 224 / 240)},
    "nasnetalarge": {"num_conv_filters": 14, "channel_multiplier": 2, "stem_size": 12, "num_features": 336},
    "densenet121": {"block_config": (2, 2, 2, 2)},
    "nest_tiny": {"depths": (1, 1, 2)},
    "deepseek_vit_412m": {"depth": 2, "embed_dim": 96, "num_heads": 4, "patch_size": 16},
    "gemma4_vit_167m": {"depth": 2, "embed_dim": 96, "num_heads": 4},
    "qwen3_vit_88m": {"depth": 2, "embed_dim": 96, "num_heads": 4},
}


def makers() -> Mapping[str, Callable[[], Made]]:
    """Names and what makes a model of nine classes with its picture."""
    import timm

    def made(name: str, side: int, sized: bool) -> Callable[[], Made]:
        settings = {"num_classes": 9, **({"img_size": side} if sized else {}), **SMALLER.get(name, {})}
        return lambda: Made(timm.create_model(name, **settings), [Given((2, 3, side, side))])

    return {
        name: made(name, side, table is SIZED)
        for table in (SIDES, SIZED)
        for side, names in table.items()
        for name in names.split()
    }


def make(folder: Path, names: list[str]) -> None:
    """Each model that is not there."""
    kept = stand_ins()
    made_all(folder, names, makers())
    kept.clear()
