"""Where the time of a first call goes, in new processes: python benchmarks/first_call.py [--products LIST] [-o FILE].

Needs a CUDA device; takes half a minute on an H200. Each product's first call is timed by phase three times: with the cubins
that came with the package (`make cubins`), with a warm cache on disk but without those cubins, and with neither. The first step
of a GPT-2 is timed in the same way under mm32.enabled(), and once by torch alone. The record is
benchmarks/results/<card>/first_call.json.

Each time is measured in a process forked from one that has imported torch but not used CUDA, so torch is imported only once.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

STARTED = time.perf_counter()

import torch  # noqa: E402 - timed; and mm32 is imported by the processes that are timed, not by this one before them

IMPORTED = time.perf_counter() - STARTED

PRODUCTS = "2048x8192x4096:nt,1024x1024x1024,512x512x512,1000x4096x3,1000x1000x1000:tt"
ORIGINS = ("wheel", "cache", "compiled")
METHOD = (
    "host seconds of the first call of a form in a new process, after torch's first product, by phase; the call's end waits for "
    'the device. "wheel": cubins that came with the package; "cache": a warm cache on disk; "compiled": neither. '
    '"cubins": finding, reading or compiling them; "second": the next call of the form, until the device is done'
)
PHASES = ("plan", "cubins", "load", "launch", "rest")
LAYERS, WIDTH, HEADS, TOKENS, VOCABULARY = 12, 768, 12, 512, 50257  # of the GPT-2


# ---------------------------------------------------------------------------------------------------------------------
# In a new process


class Phases:
    """Seconds by phase, of functions that are wrapped. A call inside another timed call counts for its own phase only."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self._open: list[float] = []  # for each timed call under way, the seconds of timed calls inside it

    def wrap(self, phase: str, run: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **options: Any) -> Any:
            self._open.append(0.0)
            start = time.perf_counter()
            try:
                return run(*args, **options)
            finally:
                whole = time.perf_counter() - start
                self.seconds[phase] += whole - self._open.pop()
                if self._open:
                    self._open[-1] += whole

        return timed

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Time mm32's own functions meanwhile."""
        from mm32 import prepared
        from mm32.cuda import cublas, driver, launch, prebuilt

        watched: list[tuple[Any, str, str]] = [
            (prepared, "planned", "plan"),
            (launch, "_cubins", "cubins"),
            (prebuilt, "find", "cubins"),
            *((driver, name, "load") for name in ("library", "load", "kernel", "function", "set_attribute")),
            (launch.Executable, "__call__", "launch"),
            (cublas.TorchProduct, "__call__", "launch"),
        ]
        before = [getattr(where, name) for where, name, _ in watched]
        for (where, name, phase), run in zip(watched, before, strict=True):
            setattr(where, name, self.wrap(phase, run))
        try:
            yield
        finally:
            for (where, name, _), run in zip(watched, before, strict=True):
                setattr(where, name, run)


def first_call(call: Callable[[], object], wait: Callable[[], None]) -> dict[str, float]:
    """Return the seconds of a call in all ("call") and by phase, and of the same call once more ("second")."""
    from mm32.cuda import compile as compiler

    phases, compiled = Phases(), []
    usual = compiler.compile_cubin

    def compile_cubin(source: str, constants: Any, arch: str, **options: Any) -> tuple[bytes, str]:
        compiled.append(f"{source} {' '.join(f'{name}={value}' for name, value in constants)}")
        return usual(source, constants, arch, **options)

    compiler.compile_cubin = compile_cubin
    with phases.watching():
        start = time.perf_counter()
        call()
        wait()
        whole = time.perf_counter() - start
    compiler.compile_cubin = usual
    for form in compiled if "--forms" in sys.argv else ():
        print(f"  compiled {form}", flush=True)
    start = time.perf_counter()
    call()
    wait()
    second = time.perf_counter() - start
    phases.seconds["rest"] = whole - sum(phases.seconds.values())
    return {"call": whole, **phases.seconds, "second": second}


def _start(origin: str) -> dict[str, float]:
    """Return the seconds that starting CUDA with torch's first product takes ("torch"), and importing mm32 ("import").

    mm32 then finds cubins of the package only if `origin` is "wheel".
    """
    start = time.perf_counter()
    a = torch.randn(300, 300, device="cuda")
    (a @ a).sum().item()
    by_torch = time.perf_counter() - start
    start = time.perf_counter()
    import mm32  # noqa: F401
    from mm32.cuda import prebuilt

    imported = time.perf_counter() - start
    if origin != "wheel":
        prebuilt.FOLDER = Path(tempfile.gettempdir()) / "no folder of cubins"
    return {"torch": by_torch, "import": imported}


def product(text: str, origin: str) -> dict[str, Any]:
    """Return a product's kernel, its number of launches, and the seconds of its first call."""
    seconds = _start(origin)
    import mm32
    from mm32 import gemm, prepared, sizes
    from mm32.cuda import cublas

    (asked,) = sizes.parse(text)
    left, right = asked.layout or "nn"
    a = torch.randn(asked.m, asked.k) if left == "n" else torch.randn(asked.k, asked.m).T
    b = torch.randn(asked.k, asked.n) if right == "n" else torch.randn(asked.n, asked.k).T
    a, b = a.to("cuda"), b.to("cuda")
    torch.cuda.synchronize()
    seconds |= first_call(lambda: mm32.matmul(a, b), torch.cuda.synchronize)
    problem = gemm.describe(a, b, None, a.new_empty(asked.m, asked.n))
    plan = prepared.planned(problem, a.get_device(), torch=cublas.offered())
    return {"kernel": plan.kernel, "launches": len(plan.launches), "seconds": seconds}


class _Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.qkv, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.qkv(self.before(x)).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in parts)
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.narrow(torch.nn.functional.gelu(self.wide(self.after(x))))


def step(who: str, origin: str) -> dict[str, Any]:
    """Return the seconds of a model's first forward and backward pass, by torch or under mm32.enabled(), and mm32's kernels."""
    seconds = _start(origin)
    import mm32

    torch.manual_seed(0)
    with torch.device("cuda"):
        embed = torch.nn.Embedding(VOCABULARY, WIDTH)
        model = torch.nn.Sequential(embed, *(_Block() for _ in range(LAYERS)), torch.nn.Linear(WIDTH, VOCABULARY))
        tokens = torch.randint(VOCABULARY, (4, TOKENS))

    def run() -> None:
        logits = model(tokens)
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()

    torch.cuda.synchronize()
    with mm32.enabled() if who == "mm32" else contextlib.nullcontext():
        seconds |= first_call(run, torch.cuda.synchronize)
    kernels = mm32.stats().kernels if who == "mm32" else {}
    return {"kernels": sorted(kernels), "products": sum(kernels.values()), "seconds": seconds}


# ---------------------------------------------------------------------------------------------------------------------
# Processes


def in_a_new_process(run: Callable[[], dict[str, Any]], cache: Path) -> dict[str, Any]:
    """Return what `run` returns in a process forked from this one, with kernel cache `cache`. Raises RuntimeError if it fails."""
    sys.stdout.flush()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reading)
            os.environ["MM32_CACHE_DIR"] = str(cache)
            with os.fdopen(writing, "w") as file:
                json.dump(run(), file)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as file:
        said = file.read()
    if os.waitpid(child, 0)[1] != 0:
        raise RuntimeError("the process that was timed failed: see above")
    return json.loads(said)


def _line(case: str, origin: str, seconds: dict[str, float]) -> str:
    shown = ("torch", "import", "call", *PHASES, "second")
    return f"{case:20} {origin:14}" + "".join(f"{name} {1e3 * seconds[name]:7.1f}  " for name in shown) + "ms"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--products", default=PRODUCTS, metavar="LIST", help=f"MxKxN[:layout],... ({PRODUCTS})")
    parser.add_argument("--forms", action="store_true", help="print which forms are compiled")
    parser.add_argument("--no-step", action="store_true", help="products only")
    parser.add_argument("-o", "--output", type=Path, help="file; default benchmarks/results/<card>/first_call.json")
    options = parser.parse_args()
    if not in_a_new_process(lambda: {"devices": torch.cuda.device_count()}, Path())["devices"]:
        print("benchmarks/first_call.py needs a CUDA device; torch finds none here", file=sys.stderr)
        return 2
    print(f"import torch: {IMPORTED:.2f} s")
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        warm = Path(folder) / "warm"
        in_order = ("wheel", "compiled", "cache")  # "compiled" fills the cache for "cache"

        def folder_of(case: str, origin: str) -> Path:
            return (Path(folder) / "wheel" if origin == "wheel" else warm) / case.replace(":", "-")

        def timed(
            case: str, name: str, run: Callable[[], dict[str, Any]], cache: Path, results: dict[str, Any]
        ) -> None:
            results[name] = in_a_new_process(run, cache)
            print(_line(case, name, results[name]["seconds"]), flush=True)

        for text in options.products.split(","):
            results: dict[str, Any] = {}
            for origin in in_order:
                timed(text, origin, functools.partial(product, text, origin), folder_of(text, origin), results)
            rows.append({"case": text, "results": {origin: results[origin] for origin in ORIGINS}})
        if not options.no_step:
            results = {}
            timed("GPT-2 step", "torch", functools.partial(step, "torch", "wheel"), warm, results)
            for origin in in_order:
                run = functools.partial(step, "mm32", origin)
                timed("GPT-2 step", f"mm32 {origin}", run, folder_of("step", origin), results)
            rows.append({"case": "GPT-2 step", "results": results})

    from mm32.bench import record
    from mm32.cuda import prebuilt

    path = options.output or Path(__file__).parent / "results" / record.folder_of_card() / "first_call.json"
    more = {"import_torch": IMPORTED, "cubins_in_the_package": len(prebuilt.entries())}
    record.write(path, record.make("first_call", rows, METHOD) | more)
    print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
