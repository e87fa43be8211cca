"""What build scripts are made of: pipelines, archives, a download from a local server, keys."""

from __future__ import annotations

import io
import tarfile
from typing import TYPE_CHECKING

import pytest

from tests.box import PYTHON

if TYPE_CHECKING:
    from tests.box import Box

pytestmark = pytest.mark.runtime


def lines(box: Box, script: str) -> list[str]:
    result = box.run(["bash", "-euo", "pipefail", "-c", script])
    assert result.exit_code == 0, result.stderr
    return result.stdout.decode().splitlines()


def test_pipelines(box: Box) -> None:
    script = """
        seq 1000 | xargs -P 4 -n 50 sh -c 'for n; do echo $((n % 7)); done' sh | sort | uniq -c |
            awk '{ total += $1 } END { print NR, total }'
        diff <(printf 'a\\nb\\n') <(printf 'a\\nc\\n') || echo "differ: $?"
        sed s/x/y/ <<<x | tee >(cat >copy) | cat
        coproc tr a-z A-Z
        exec {from}<&"${COPROC[0]}"  # Bash forgets the name once that has ended.
        echo upper >&"${COPROC[1]}"; exec {COPROC[1]}>&-; cat <&$from
        mkfifo fifo; (echo through >fifo) & cat fifo; wait
        (exit 3) || echo "$?"; kill -TERM $BASHPID & wait $! || echo "$?"
    """
    assert lines(box, script) == [
        "7 1000", "2c2", "< b", "---", "> c", "differ: 1", "y", "UPPER", "through", "3", "143",
    ]  # fmt: skip


def test_archives(box: Box) -> None:
    """Also what other users packed: their ids cannot be given to files here."""
    with tarfile.open(box.workspace / "foreign.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo("foreign/file")
        member.size, member.uid, member.gid, member.mode = 4, 1234, 1234, 0o640
        archive.addfile(member, io.BytesIO(b"text"))
    script = """
        mkdir -p made/deep; echo text >made/deep/file; ln -s deep/file made/link
        ln made/deep/file made/hard; chmod 750 made/deep
        tar czf made.tar.gz made; mv made was; tar xzf made.tar.gz
        diff -r made was; stat -c '%a %h' made/deep made/hard; readlink made/link
        tar xf foreign.tar.gz; stat -c '%a %u' foreign/file; cat foreign/file
    """
    assert lines(box, script) == ["750 2", "644 2", "deep/file", "640 0", "text"]


def test_curl_and_a_local_server(box: Box) -> None:
    script = f"""
        echo served >file
        {PYTHON} -u -m http.server --bind localhost 8000 >log 2>&1 &
        curl -sS --retry 20 --retry-connrefused --retry-delay 1 http://localhost:8000/file
        curl -sS --fail http://127.0.0.1:8000/none || echo "$?"
        curl -sS --max-time 5 http://example.org 2>/dev/null || echo "$?"
        kill %1
    """
    assert lines(box, script) == ["served", "22", "6"]


def test_openssl(box: Box) -> None:
    """Keys, a certificate, and a connection that trusts it."""
    script = """
        openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -days 1 \\
            -keyout key.pem -out certificate.pem 2>/dev/null
        openssl dgst -sha256 -sign key.pem -out signature certificate.pem
        openssl x509 -in certificate.pem -pubkey -noout >public.pem
        openssl dgst -sha256 -verify public.pem -signature signature certificate.pem
        openssl s_server -accept 4433 -key key.pem -cert certificate.pem -www -quiet &
        curl -sS --retry 20 --retry-connrefused --retry-delay 1 --cacert certificate.pem \\
            -o /dev/null -w '%{http_code}\\n' https://localhost:4433/
        kill %1
    """
    assert lines(box, script) == ["Verified OK", "200"]
