"""Model folders on disk: assembled from packages, converted, quantised, cached."""
