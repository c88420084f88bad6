"""The shim against the fake driver: what gpu_shares asks for without a GPU."""
