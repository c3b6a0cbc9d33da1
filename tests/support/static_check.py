"""What KernelBench's static check of a CUDA candidate refuses and what it warns of, as rules of our own: an exported file must
meet both. The check reads text, not syntax, so a word in the C++ or in a docstring counts like a statement. Comments do not."""

from __future__ import annotations

import re

# A file that matches any of these is refused.
REFUSED = {
    "an exception is caught": r"\b(?:try|except)\s*:|\bexcept\s+\w",
    "the word pass": r"\bpass\b",
    "threads or processes": r"\bimport\s+(?:threading|multiprocessing)\b|\bfrom\s+threading\b|\bthreading\.Thread\b"
    r"|\bmultiprocessing\.\w|concurrent\.futures|(?:Thread|Process)PoolExecutor",
    "a tensor that is not computed": r"_make_subclass|class\s.*\((?:torch\.)?Tensor\)|torch\.Tensor\.__new__",
    "a clock is replaced": r"torch\.cuda\.(?:Event(?:\.\w+)?|synchronize)\s*=|\btime\.(?:perf_counter|time)\s*=",
}
# A file that matches any of these gets a warning by default; whoever runs the check may choose to refuse it.
WARNED = {
    "a layer of torch": r"torch\.nn\.(?!Module\b|ModuleList\b|ModuleDict\b|Parameter\w*\b|parameter\b|init\b)",
    "torch computes": r"\btorch\.(?:\w*mm|matmul|einsum|linear|conv\w*|\w*pool\dd|\w*softmax|\w*relu|\w*elu|tanh|sigmoid|silu"
    r"|hardtanh|hardsigmoid|mish|softsign|softplus|clamp|dropout|logsumexp|normalize|\w+_norm|\w+_loss|kl_div|cross_entropy"
    r"|cosine_similarity)(?=\s|\(|$)|\bnn\.functional\b|\bF\.\w+\(",
    "streams": r"cuda\.Stream\s*\(|with\s+torch\.cuda\.stream\b|\.(?:wait|record)_stream\s*\(",
    "numbers in less precision": r"__float2half|\(\s*__half\s*\)|static_cast\s*<\s*(?:__)?half\s*>|\.(?:half|float16)\s*\("
    r"|\.to\s*\((?:\s*dtype\s*=)?\s*torch\.(?:half|float16)\b",
}
NEEDED = ("__global__", "load_inline")


def complaints(text: str) -> list[str]:
    """Return what the check would complain of in a file; an empty list if it is accepted without a warning."""
    code = "\n".join(re.split("#|//", line)[0] for line in text.split("\n"))
    found = [what for what, pattern in (REFUSED | WARNED).items() if re.search(pattern, code, flags=re.M)]
    return found + [f"no {word}" for word in NEEDED if word not in code]
