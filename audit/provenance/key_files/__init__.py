"""The forms in which a private key lies in a key folder: PEM, a key in a token, and Go's line of earlier versions."""
