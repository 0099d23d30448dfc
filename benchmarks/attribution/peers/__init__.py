"""Attribution head to head: this project beside its peers, on the same stores, backbone and harmful events."""
