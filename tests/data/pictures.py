"""Small pictures as files, and refusals of what is none."""

import io
import zipfile

import numpy as np
import pytest

pytest.importorskip("PIL")
from PIL import Image

from headstart.data.images import load_images
from headstart.data.table import Columns
from headstart.errors import DataError


def picture(seed=0, mode="RGB", format="PNG", size=(8, 6)):
    """The bytes of a small image of noise."""
    rng = np.random.default_rng(seed)
    image = Image.fromarray(rng.integers(256, size=(size[1], size[0], 3), dtype=np.uint8))
    buffer = io.BytesIO()
    image.convert(mode).save(buffer, format)
    return buffer.getvalue()


def plant(root, **files):
    """Images below `root`; a path has __ for / and gets the suffix .png."""
    for seed, (name, data) in enumerate(files.items()):
        path = root / (name.replace("__", "/") + ".png")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data or picture(seed))
    return root


def refuse(message, path, **names):
    with pytest.raises(DataError, match=message) as caught:
        load_images(path, Columns(**names))
    assert "\n" not in str(caught.value)


META = """path,split,label,domain
in/a.png,train,0,photo
in/b.png,test,1,sketch
"""


def archive(path, meta=META, **members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        if meta is not None:
            file.writestr("meta.csv", meta)
        for name, data in (members or {"in/a.png": picture(0), "in/b.png": picture(1)}).items():
            file.writestr(name, data)
    return path
