"""A trained dense network from its file: masks of other images, and tests on them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart import optional
from headstart.data.backbones.catalogue import NETWORKS
from headstart.data.backbones.preprocess import Whole
from headstart.data.image_samples import ImageReader, ImageSamples
from headstart.data.scene_samples import SceneReader, SceneSamples
from headstart.data.table import Columns
from headstart.errors import HeadstartError, WireError
from headstart.pipeline.inputs import holds_scenes, read_images
from headstart.statistics import wire
from headstart.statistics.confusion import Confusion

KIND = "model"  # of the file


@dataclass(frozen=True, eq=False)
class DenseModel:
    """What `ModelState.save` wrote of a dense network."""

    about: dict[str, Any]
    params: dict[str, NDArray[Any]]

    @classmethod
    def load(cls, path: Path) -> DenseModel | None:
        """The model in a file; None where it holds something else, which is not looked at."""
        try:
            arrays = dict(wire.decode_file(path.read_bytes(), KIND))
            about = json.loads(arrays.pop("about").tobytes())
        except (OSError, WireError, KeyError, ValueError):
            return None
        if "scenes" not in about:
            raise HeadstartError(
                f"model: {path} holds a network that trained on images, which predicts in Python "
                "alone; expected a head, or a dense network"
            )
        return cls(about, arrays)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the classes, in their places."""
        return tuple(self.about["scenes"]["classes"])

    @property
    def _job(self) -> Any:
        optional.check("torch", "a dense network")
        from headstart.gradient.models import Spec
        from headstart.gradient.steps import Job

        spec = {key: v for key, v in self.about.items() if key not in ("scenes", "images")}
        return Job("fedavg", Spec.of(spec))

    @property
    def _preprocess(self) -> Whole:
        usual = NETWORKS[str(self.about["network"])].preprocess
        height, width = self.about["scenes"]["pixels"]
        return Whole(height, width, usual.interpolation, usual.mean, usual.std)

    @property
    def inference(self) -> str:
        """What it is normalized with; images of nobody's domain take those of all of them."""
        said = str(self.about["scenes"]["inference"])
        return "whole" if said.startswith("by-domain") else said

    def tested(self, source: str, columns: Columns) -> tuple[int, Confusion]:
        """How many scenes there are (of their test part, if they have one), and the matrix."""
        from headstart.gradient import pixel_tests

        scenes: Any = read_images(source, columns, self._preprocess.height)
        if not holds_scenes(source):
            raise HeadstartError(f"data: expected images with masks, got none in {source}")
        scenes = scenes if scenes.test is None else scenes.test_part()
        if scenes.names != self.names:
            raise HeadstartError(
                f"data: expected masks of {', '.join(self.names)}; got {', '.join(scenes.names)}"
            )
        reader = SceneReader(scenes, self._preprocess)
        samples = SceneSamples(reader, np.arange(len(scenes)), scenes.labels)
        found = pixel_tests.tested(self._job, self.params, samples, self.names, self.inference)
        return len(scenes), found

    def masks(self, images: Any) -> Iterator[NDArray[np.int64]]:
        """The place of the class of every pixel of each image."""
        from headstart.gradient import pixel_tests

        reader = ImageReader(images, self._preprocess)
        samples = ImageSamples(reader, np.arange(len(images)), images.labels)
        sizes = ((image.height, image.width) for image in map(images.open, range(len(images))))
        yield from pixel_tests.masks(self._job, self.params, samples, sizes, self.inference)
