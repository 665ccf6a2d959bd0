"""XLA gives NaN for the softmax of a row that is masked with the smallest float and then divided.

jax 0.10.2 on a CPU: all 16 of 16 rows are NaN with jit, none without, and none in torch. The largest element and the
elements that it is taken from are computed in two fusions, which round the division otherwise; the difference of two
numbers near -1e38 is then so large that every exponential is zero.
"""

import jax
import jax.numpy as jnp
import numpy as np

scores = np.random.default_rng(0).standard_normal((16, 16)).astype("float32")
mask = np.full((16, 16), np.finfo("float32").min)


def attention(scores, mask):
    return jax.nn.softmax((scores + mask) / 2.8284271247461903, axis=-1)


for name, function in (("jit", jax.jit(attention)), ("no jit", attention)):
    print(name, "rows of NaN:", int(jnp.isnan(function(scores, mask)).any(axis=-1).sum()), "of 16")
