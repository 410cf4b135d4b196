"""Images of a folder as samples of an input."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from convertkit.artifact import Array, TensorSpec
from convertkit.errors import FeedError, MissingFramework
from convertkit.recipe import ImageOptions

if TYPE_CHECKING:
    from PIL import Image

_GREATEST_16 = 0xFFFF


def _of_bytes(image: Image.Image, file: Path) -> Image.Image:
    """Grey images of 16 bits scaled to 8, where Pillow's own conversion cuts off what is above 255."""
    from PIL import Image

    if not image.mode.startswith(("I", "F")):
        return image
    values = np.asarray(image)
    if image.mode == "F" or values.min() < 0 or values.max() > _GREATEST_16:
        raise FeedError(
            f"{file} holds numbers beyond 16 bits, or real ones; store such data as .npy, scaled as in training"
        )
    return Image.fromarray(np.rint(values / (_GREATEST_16 / 255)).astype(np.uint8))


class ImageReader:
    """Reads one image as one sample of an input, channels where the input has them.

    ``shape`` is that of the sample in the source's layout, ``channels_first`` whether it begins with the channels.
    """

    def __init__(self, spec: TensorSpec, options: ImageOptions) -> None:
        shape = spec.source_shape[1:]
        if len(shape) != 3:
            raise FeedError(f"images for input {spec.name} of shape {spec.source_shape}; expected N×C×H×W or N×H×W×C")
        if free := [dim for dim in shape if isinstance(dim, str)]:
            raise FeedError(f"images for input {spec.name} of a dynamic size; fix it with --static {free[0]}=SIZE")
        self.shape = tuple(int(dim) for dim in shape)
        self._dtype, self._name = spec.dtype, spec.name
        self._options = options
        self.channels_first = self.shape[0] in (1, 3) and self.shape[2] not in (1, 3)
        self.channels_first |= self.shape[0] in (1, 3) and self.shape[1] > 3 and self.shape[2] > 3
        if options.layout != "auto":
            self.channels_first = options.layout == "nchw"
        self.channels = self.shape[0] if self.channels_first else self.shape[2]
        if self.channels not in (1, 3):
            raise FeedError(f"images for input {spec.name} with {self.channels} channels; expected 1 or 3")
        for numbers in (options.mean, options.std):
            if len(numbers) not in (1, self.channels):
                raise FeedError(f"{len(numbers)} means for {self.channels} channels of input {spec.name}")

    @property
    def notes(self) -> tuple[str, ...]:
        """How pixels became numbers, where nobody said it."""
        options = self._options
        if not np.issubdtype(np.dtype(self._dtype), np.floating) or (options.mean, options.std) != ((0.0,), (255.0,)):
            return ()
        return (
            f"images were scaled to 0..1 (pixel / 255); where training did otherwise, --normalization {self._name}:"
            "MEAN/STD in units of pixels",
        )

    def __call__(self, file: Path) -> Array:
        try:
            from PIL import Image, ImageOps
        except ImportError as error:
            raise MissingFramework("pillow", "images") from error
        try:
            with Image.open(file) as opened:
                # The camera's rotation tag is applied, as every viewer does.
                upright = ImageOps.exif_transpose(opened)
        except Exception as error:  # Pillow's decoders raise errors of many kinds on broken files
            raise FeedError(f"{file} is not a readable image") from error
        return self.sample(_of_bytes(upright, file))

    def sample(self, image: Image.Image) -> Array:
        """The sample that an upright image of bytes becomes."""
        return self._normalised(np.asarray(self._fitted(image.convert("L" if self.channels == 1 else "RGB"))))

    def _fitted(self, image: Image.Image) -> Image.Image:
        """The image in the input's size."""
        from PIL import Image, ImageOps

        height, width = self.shape[1:] if self.channels_first else self.shape[:2]
        size, options = (width, height), self._options
        way = Image.Resampling[options.filter.upper()]
        if options.fit == "crop":
            return ImageOps.fit(image, size, way, bleed=(1 - options.share) / 2)
        if options.fit == "pad":
            return ImageOps.pad(image, size, way, color=options.fill if image.mode == "L" else (options.fill,) * 3)
        return image.resize(size, way)

    def _normalised(self, pixels: Array) -> Array:
        pixels = pixels.reshape(*pixels.shape[:2], self.channels)
        if self._options.order == "bgr":
            pixels = pixels[:, :, ::-1]
        if np.issubdtype(np.dtype(self._dtype), np.floating):
            mean, std = (np.array(each, np.float32) for each in (self._options.mean, self._options.std))
            pixels = ((pixels.astype(np.float32) - mean) / std).astype(self._dtype)
        return pixels.transpose(2, 0, 1) if self.channels_first else pixels
