"""KernelBench's static check accepts every exported file."""

from __future__ import annotations

import itertools

import pytest

from mm32 import activations
from mm32.export import export, export_script
from mm32.plan import KERNELS
from support.export import FORMS, plan_of, two_forms
from support.static_check import complaints


@pytest.mark.parametrize(("kernel", "layout", "sizes", "options"), FORMS)
def test_every_form_is_accepted(kernel, layout, sizes, options):
    assert complaints(export_script(plan_of(kernel, layout, sizes, options), layout)) == []


def test_what_files_say_of_plans_is_accepted():
    """Files of layers, activations, precisions, and plans that say what "auto" did not choose, and why, are accepted."""
    texts = [export("nt", m=96, n=80, k=64, bias=True, kernel=kernel, linear=True) for kernel in KERNELS]
    texts += [export("tn", m=96, n=80, k=64, activation=activation) for activation in activations.names()]
    sizes = [(2048, 4096, 8192), (64, 64, 16), (64, 64, 100), (1, 4096, 4096), (3000, 1, 31)]
    texts += [
        export("tt", m=m, n=n, k=k, precision=precision)
        for (m, n, k), precision in itertools.product(sizes, ("fp32", "ieee", "tf32"))
    ]
    for text in (*texts, export_script(two_forms(), "nn")):
        assert complaints(text) == []


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("try:", "an exception is caught"),
        ("all except those", "an exception is caught"),
        ("for (int pass = 0; pass < 4; pass++)", "the word pass"),
        ("import threading", "threads or processes"),
        ("class Lazy(torch.Tensor):", "a tensor that is not computed"),
        ("torch.cuda.synchronize = None", "a clock is replaced"),
        ("y = torch.nn.Linear(4, 4)(x)", "a layer of torch"),
        ("y = torch.matmul(a, b)", "torch computes"),
        ("with torch.cuda.stream(s):", "streams"),
        ("x = x.half()", "numbers in less precision"),
    ],
)
def test_the_rules_find_what_they_are_for(line, complaint):
    text = export("nn", m=8, n=8, k=8, kernel="naive")
    assert complaints(f"{text}\n{line}\n") == [complaint]
    assert complaints(f"{text}\n# {line}\n") == []
    assert complaints(text.replace("load_inline", "build")) == ["no load_inline"]
