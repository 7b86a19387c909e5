"""What every peer's script shares: trials by row, the count of allocations, writers that are killed.

A trial is a function that tries one row of docs/peers.md and returns what happened, with "yes", "partly" or "no" in front.
    python try_torch.py [ROW…]    prints them as a Markdown table
"""
import ctypes, os, platform, signal, subprocess, sys, tempfile, warnings

TRIALS = []


def trial(row):
    """Registers a function as the trial of a row."""
    return lambda f: TRIALS.append((row, f)) or f


def first_line(error):
    """A message on one line, short enough for a table."""
    text = " ".join(str(error).split()) or type(error).__name__
    return f"{type(error).__name__}: {text[:150]}"


def main(versions):
    """Runs the trials that the command line names (all, if it names none), each with its mistakes shown as such."""
    count_allocations()
    warnings.simplefilter("ignore")
    print(f"{versions}; Python {platform.python_version()}; {platform.machine()}, {os.cpu_count()} CPUs\n\n| row | | what happened |\n|---|---|---|")
    for row, f in TRIALS:
        if len(sys.argv) == 1 or row in sys.argv[1:]:
            try:
                verdict, what = f()
            except Exception as error:
                verdict, what = "?", "the trial itself failed: " + first_line(error)
            print(f"| {row} | {verdict} | {what} |", flush=True)


COUNTER = r"""
#define _GNU_SOURCE
#include <stddef.h>
#include <unistd.h>
#include <sys/syscall.h>
void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);
static unsigned long n;
unsigned long large_allocations(void) { return n; }
static void count(size_t bytes) { if (bytes >= 4096) __atomic_add_fetch(&n, 1, __ATOMIC_RELAXED); }
void *malloc(size_t s) { count(s); return __libc_malloc(s); }
void *calloc(size_t k, size_t s) { count(k * s); return __libc_calloc(k, s); }
void *realloc(void *p, size_t s) { count(s); return __libc_realloc(p, s); }
void *memalign(size_t a, size_t s) { count(s); return __libc_memalign(a, s); }
void *aligned_alloc(size_t a, size_t s) { count(s); return __libc_memalign(a, s); }
int posix_memalign(void **p, size_t a, size_t s) { count(s); *p = __libc_memalign(a, s); return *p ? 0 : 12; }
void *mmap(void *p, size_t s, int r, int f, int d, long o) { count(s); return (void *)syscall(SYS_mmap, p, s, r, f, d, o); }
"""


def count_allocations():
    """Starts the script again with a library in front of glibc that counts the allocations of 4 KiB or more."""
    if "LD_PRELOAD" in os.environ:
        return
    folder = tempfile.mkdtemp()
    source, library = f"{folder}/counter.c", f"{folder}/counter.so"
    with open(source, "w") as f:
        f.write(COUNTER)
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", source, "-o", library], check=True)
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "LD_PRELOAD": library})


def allocations(step, warm=5, steps=5):
    """Allocations of 4 KiB or more that a steady step makes."""
    counter = ctypes.CDLL(None).large_allocations
    counter.restype = ctypes.c_ulong
    for _ in range(warm):
        step()
    before = counter()
    for _ in range(steps):
        step()
    return (counter() - before) / steps


def child(code, **environment):
    """A script in a process of its own: its exit code (negative: a signal) and its output's last line."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}, timeout=300)
    lines = (done.stdout.strip() or done.stderr.strip() or "nothing").splitlines()
    return done.returncode, lines[-1]


def killed_while(save, load):
    """Saves once; saves again in a child that the kernel kills at its 20,000th byte of a file; then loads.

    `save` and `load` are code; they use `path` and `number`, what the tensor is filled with.
    """
    folder = tempfile.mkdtemp()
    path = os.path.join(folder, "checkpoint")
    limit = "import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_DFL)\nresource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))\n"
    environment = {"CACHELEVEL": "0"}  # tinygrad would otherwise be killed in its cache of kernels
    code, said = child(f"path, number = {path!r}, 1.0\n{save}", **environment)
    assert code == 0, said
    code, said = child(f"path, number = {path!r}, 2.0\n{limit}{save}", **environment)
    assert code in (-signal.SIGXFSZ, 1), f"not stopped: {code} {said}"
    left = ", ".join(f"{n} of {os.path.getsize(os.path.join(folder, n))} bytes" for n in sorted(os.listdir(folder)))
    end = f"writer's exit {code}, it left {left}"
    code, said = child(f"path, number = {path!r}, 0.0\n{load}", **environment)
    return ("yes", f"the checkpoint before loads (first number {said}; {end})") if code == 0 else ("no", f"the one before is gone ({end}): {said[:120]}")
