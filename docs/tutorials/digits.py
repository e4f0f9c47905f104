# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Ten minutes on digits
#
# Fifty clients with very unlike data, one message each, and a classifier as good as if all the data were in one place.
# In a clone, `pip install .` is all you need: the digits come with scikit-learn.

# %%
import matplotlib.pyplot as plt
import numpy as np

import headstart as hs
from headstart.data.datasets import load
from headstart.data.partition import dirichlet

digits = load("digits")
train, test = digits.train_part(), digits.test_part()
print(len(train), "training samples,", len(test), "test samples, dimension", digits.dimension)

# %% [markdown]
# A sample is an 8×8 image of 64 grey values, and they are our features as they are. With photographs a pre-trained
# network would make features of them; nothing else would change.

# %%
_, axes = plt.subplots(1, 10, figsize=(8, 1.1))
for axis, image, label in zip(axes, train.features, train.labels, strict=False):
    axis.imshow(image.reshape(8, 8), cmap="gray_r")
    axis.set_title(label)
    axis.axis("off")
plt.show()

# %% [markdown]
# ## Unlike clients
#
# Each class is dealt to the fifty clients by a Dirichlet distribution; a small α makes them unlike. Most clients see two or
# three digits, and some almost nothing.

# %%
clients = dirichlet(train.labels, 50, alpha=0.1, seed=0)
held = np.array([np.bincount(train.labels[i], minlength=10) for _, i in clients.items()])
_, axis = plt.subplots(figsize=(8, 2.2))
picture = axis.imshow(held.T, aspect="auto", cmap="Blues")
axis.set(xlabel="client", ylabel="digit", yticks=range(0, 10, 3))
plt.colorbar(picture, label="samples")
plt.show()

# %% [markdown]
# ## One message each
#
# A client measures its samples, and sends that. The server adds what comes, in any order, and solves a ridge regression;
# λ is chosen from the same sums. Here is the accuracy after each message.

# %%
head = hs.Fed3R(ridge="gcv")
uploads = {
    name: head.measure(train.features[i], train.labels[i]).to_bytes()
    for name, i in clients.items()
    if len(i)
}
sizes = [len(upload) for upload in uploads.values()]
print(f"{len(uploads)} messages of {min(sizes):,} to {max(sizes):,} bytes")

# %%
total, accuracies = None, []
for upload in uploads.values():
    message = hs.Moments.from_bytes(upload)
    total = message if total is None else total + message
    accuracies.append(head.solve(total).accuracy(test.features, test.labels))
_, axis = plt.subplots(figsize=(8, 2.6))
axis.plot(range(1, len(accuracies) + 1), accuracies)
axis.set(xlabel="messages", ylabel="test accuracy")
axis.grid(alpha=0.3)
plt.show()

# %% [markdown]
# ## Nothing was lost by the split
#
# In exact mode the sum of the clients' messages and the measurement of all the data in one place are the same bits, so the
# heads are the same, too.

# %%
exact = [head.measure(train.features[i], train.labels[i], exact=True) for _, i in clients.items() if len(i)]
pooled = head.measure(train.features, train.labels, exact=True)
print(hs.total(exact).digest()[:16], pooled.digest()[:16])
assert hs.total(exact).digest() == pooled.digest()

# %% [markdown]
# A client that leaves is subtracted, and it is as if it had never been there.

# %%
without = hs.total(exact) - exact[0]
assert without.digest() == hs.total(exact[1:]).digest()
print(f"{pooled.samples} samples, then {without.samples}")

# %% [markdown]
# ## Everybody's own
#
# A client knows which digits it has. If it keeps the head's rows of those alone (OLL, only local labels), it can no longer take a 3
# for an 8 that it never sees. That costs nothing.

# %%
model = head.solve(total)
shared, own = [], []
for _, i in clients.items():
    if not len(i):
        continue
    classes = np.unique(train.labels[i])
    at_home = np.isin(test.labels, classes)  # what this client would be asked
    shared.append(model.accuracy(test.features[at_home], test.labels[at_home]))
    own.append(model.restrict(classes).accuracy(test.features[at_home], test.labels[at_home]))
_, axis = plt.subplots(figsize=(4, 4))
axis.scatter(shared, own, s=18)
axis.plot([0.7, 1], [0.7, 1], color="grey", linewidth=1)
axis.set(xlabel="everybody's head", ylabel="only local labels", title="accuracy, a dot per client")
plt.show()
print(f"mean over clients: {np.mean(shared):.3f}, only local labels {np.mean(own):.3f}")

# %% [markdown]
# ## All of it in one line
#
# `hs.run` does what stands above through a simulated federation, and writes a report with these figures and more. On the command
# line it is `headstart fit --data digits --out runs/digits`.

# %%
result = hs.run("Fed3R(ridge=gcv)", data="digits", clients=50, alpha=0.1, out="runs/digits")
print(result)
print("report:", result.report("report"))

# %% [markdown]
# Next: [your own images over hospitals](hospitals.md), or [a figure that compares methods](figure.md).
