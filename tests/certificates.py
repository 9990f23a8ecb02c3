"""Certificates for tests, which `openssl` makes."""

import subprocess


def certificate(folder, host):
    """Return the files of a key and of a certificate for a host, which is its own authority."""
    files = folder / "key.pem", folder / "cert.pem"
    kind = "IP" if host.replace(".", "").isdigit() else "DNS"
    named = ["-subj", f"/CN={host}", "-addext", f"subjectAltName={kind}:{host}"]
    asked = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *named]
    out = ["-keyout", str(files[0]), "-out", str(files[1])]
    subprocess.run(["openssl", "req", *asked, *out], check=True, capture_output=True)
    return files
