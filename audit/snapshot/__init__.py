"""The signed store on disk: Parquet data, manifests, publishing, verification. The only place that touches storage."""
