"""What healthy starts of engines print, as far as triage looks, and noise that means nothing."""

from __future__ import annotations

ORDER = ("args", "dist_init", "weights", "draft", "kv_cache", "capture", "warmup", "serving")

NOISE = (
    "/opt/py/lib/x.py:12: FutureWarning: torch.thing is going away",
    "[Gloo] Rank 0 is connected to 7 peer ranks. Expected number of connected peer ranks is : 7",
    "Using default MoE kernel config. Performance might be sub-optimal! Config file not found at E",
    "node7:311:402 [1] NCCL INFO Channel 00/0 : 1[1] -> 2[2] via P2P/IPC",
    "Loading safetensors checkpoint shards:  40% Completed | 4/10 [00:03<00:05]",
    "[Gloo] Rank 1 is connected to 3 peer ranks. Expected number of connected peer ranks is : 3",
    "/opt/py/resource_tracker.py:254: UserWarning: resource_tracker: There appear to be 2 leaked",
)

BOOT: dict[str, tuple[tuple[str, str, str], ...]] = {
    "sglang": (
        ("args", "main", "server_args=ServerArgs(model_path='/m', tp_size={world}, ep_size=1)"),
        ("dist_init", "all", "Init torch distributed begin."),
        ("dist_init", "r0", "sglang is using nccl==2.27.5"),
        ("weights", "all", "Load weight begin. avail mem=90.11 GB"),
        ("kv_cache", "all", "Load weight end. elapsed=30.1 s, type=Foo, avail mem=40.2 GB"),
        ("capture", "all", "Capture cuda graph begin. This can take up to several minutes."),
        ("warmup", "r0", "max_total_num_tokens=180000, chunked_prefill_size=8192"),
        ("serving", "main", "The server is fired up and ready to roll!"),
        ("serving", "r0", "Decode batch, #running-req: 3, #token: 400, token usage: 0.01"),
    ),
    "vllm": (
        ("args", "api", "non-default args: {{'tensor_parallel_size': {world}, 'port': 8000}}"),
        ("dist_init", "all", "world_size={world} rank={r} distributed_init_method=tcp://::1:4"),
        ("dist_init", "r0", "vLLM is using nccl==2.27.5"),
        ("weights", "all", "Starting to load model /m..."),
        ("kv_cache", "all", "Model loading took 40.1 GiB and 31.2 seconds"),
        ("capture", "r0", "Capturing CUDA graphs (decode, FULL)"),
        ("warmup", "core", "init engine (profile, create kv cache, warmup model) took 61.2 s"),
        ("serving", "api", "Application startup complete."),
    ),
    "builtin": (
        ("dist_init", "all", "meeting the other ranks"),
        ("weights", "all", "loading weights"),
        ("kv_cache", "all", "KV cache: 12000 tokens"),
        ("capture", "all", "batch size 8: dry run 20.1 ms"),
        ("serving", "all", "step 1"),
    ),
    "torch": (),
}
"""Phase, who says it, what it says."""
