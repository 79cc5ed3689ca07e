"""What is printed starts the plan: every option is one that the named version takes."""

import itertools
import json
import math
import shlex
import tomllib
from pathlib import Path

from infer_jax.catalog import load_model, load_system
from infer_jax.launch import (
    Instance,
    LaunchedService,
    ModelCheckpoint,
    budget,
    instances,
    launches,
    service,
    traits,
)
from infer_jax.planning import Layout, PlanPool

TABLE = tomllib.loads((Path(__file__).parents[2] / "data" / "engines.toml").read_text())
ISL, CONTEXT = 3000, 3500


def options(engine, command):
    """Options of a command and what follows each, checked against the table of its version."""
    known = TABLE[engine]
    words = shlex.split(command.replace("\\\n", " "))
    start = shlex.split(known["program"])
    if words[0].startswith("CUDA_VISIBLE_DEVICES="):
        words.pop(0)
    if "srun" in words[:1]:
        at = words.index("trtllm-llmapi-launch")
        launcher, words = words[1:at], words[at + 1 :]
        assert launcher[::2] == ["--nodes", "--ntasks", "--ntasks-per-node", "--mpi"], launcher
    assert words[: len(start)] == start, command
    words = words[len(start) :]
    result = {"model": words.pop(0)} if not words[0].startswith("--") else {}
    while words:
        name = words.pop(0)
        assert name in known["options"], f"{engine} takes no {name}"
        assert name not in result, f"{name} twice"
        value = ""
        if words and not words[0].startswith("--"):
            value = words.pop(0)
        result[name] = value
        kind = known["options"][name]
        if kind == "int" and not value.startswith("$"):
            assert int(value) >= -1
        elif kind == "none":
            assert value == "", (name, value)
        elif kind.startswith("json:"):
            assert set(json.loads(value)) <= set(kind.removeprefix("json:").split())
        elif kind == "str":
            assert value
        elif kind != "int":
            assert value in kind.split(), (name, value)
        assert not words or words[0].startswith("--"), (name, words[:2])
    return result


def number(result, name, otherwise=1):
    return int(result.get(name, otherwise))


def serves(engine, launch, plan):
    """Every command of a launch asks for the degrees, lengths and requests of the plan."""
    for one in plan.instances:
        role = one.role
        mine = [s for s in launch.steps if s.where.startswith(role) and "before" not in s.where]
        assert mine
        for step in mine:
            CHECKS[engine](options(engine, step.command), one, plan)
        nodes = -(-one.gpus // one.machine)
        if engine != "trtllm":
            assert len(mine) == (1 if nodes == 1 else 2)


def vllm(result, one, plan):
    copies = number(result, "--data-parallel-size") // one.groups
    assert copies in (1, one.copies) and (copies == 1 or not plan.experts)
    assert number(result, "--tensor-parallel-size") == one.tp
    assert number(result, "--pipeline-parallel-size") == one.pp
    assert number(result, "--data-parallel-size") == one.groups * copies
    # experts are dealt to all ranks of a stage, or each is cut over all of them
    assert one.ep == (one.ranks if "--enable-expert-parallel" in result else 1)
    assert number(result, "--max-num-seqs") * one.groups >= one.requests
    assert number(result, "--max-model-len") == plan.context
    tokens = number(result, "--max-num-batched-tokens")
    assert tokens >= number(result, "--max-num-seqs")  # vllm/config/scheduler.py refuses less
    stages = one.groups * one.pp  # of a pool that prefills each has a pass of its own
    needed = math.ceil(one.requests / one.groups) * (1 + one.drafts)
    if one.role == "prefill":
        needed = ISL * math.ceil(one.requests / stages)
    # as the estimator takes vLLM's passes to be: the plan's tokens, or the engine's 8192
    assert tokens == max(min(one.chunk, 8192), needed)
    assert result["model"] == plan.checkpoint.repository
    assert bool(plan.checkpoint.cast) == ("--quantization" in result)
    assert bool(plan.checkpoint.cache) == ("--kv-cache-dtype" in result)
    drafts = json.loads(result.get("--speculative-config", "{}"))
    assert drafts.get("num_speculative_tokens", 0) == one.drafts
    if one.drafts:
        assert drafts.get("model", "") == plan.draft
        assert drafts["method"] == ("draft_model" if plan.draft else "mtp")
    roles = {"prefill": "kv_producer", "decode": "kv_consumer"}
    moved = json.loads(result.get("--kv-transfer-config", "{}"))
    assert moved.get("kv_role") == roles.get(one.role)
    nodes = number(result, "--nnodes")
    assert one.gpus <= nodes * one.machine and one.gpus % nodes == 0
    if nodes > 1:
        assert ("--headless" in result) == (result["--node-rank"] != "0")
        assert result["--master-addr"] == "$HEAD"


def sglang(result, one, plan):
    copies = number(result, "--dp-size")
    assert copies in (1, one.copies)
    assert number(result, "--tp-size") == one.ranks
    assert number(result, "--pp-size") == one.pp
    assert number(result, "--attn-dp-size") == one.groups
    assert number(result, "--ep-size") == one.ep
    # both are for all attention groups together, which divide them
    assert number(result, "--max-running-requests") >= one.requests
    chunk = number(result, "--chunked-prefill-size")
    assert chunk == (-1 if one.chunk >= ISL else one.chunk * one.groups)
    assert number(result, "--context-length") == plan.context
    assert result["--model-path"] == plan.checkpoint.repository
    assert bool(plan.checkpoint.cast) == ("--quantization" in result)
    assert bool(plan.checkpoint.cache) == ("--kv-cache-dtype" in result)
    assert number(result, "--speculative-num-steps", 0) == one.drafts
    if one.drafts:  # a chain: one more token is verified than is drafted
        assert number(result, "--speculative-num-draft-tokens") == one.drafts + 1
        assert result["--speculative-algorithm"] == ("STANDALONE" if plan.draft else "NEXTN")
        assert result.get("--speculative-draft-model-path", "") == plan.draft
    assert result.get("--disaggregation-mode", "") == one.role
    nodes = number(result, "--nnodes")
    assert one.gpus <= nodes * one.machine and one.tp * one.groups * one.pp % nodes == 0
    assert nodes == 1 or result["--dist-init-addr"] == "$HEAD:20000"
    assert nodes == 1 or "--dp-size" not in result


def trtllm(result, one, plan):
    assert number(result, "--tp_size") == one.ranks
    assert number(result, "--pp_size") == one.pp
    assert number(result, "--ep_size") == one.ep
    assert number(result, "--max_seq_len") == plan.context
    assert number(result, "--max_batch_size") * one.groups >= one.requests
    assert one.groups == 1 or one.tp == 1
    assert result["model"] == plan.checkpoint.repository
    assert not plan.checkpoint.cast
    files = "--config" in result
    written = (one.groups > 1, one.chunk < ISL, plan.checkpoint.cache, one.drafts, one.role)
    assert files == any(written)


CHECKS = {"vllm": vllm, "sglang": sglang, "trtllm": trtllm}
NAMES = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM"}
LOADS = (
    ModelCheckpoint("a/b"),
    ModelCheckpoint("a/b", cast="fp8", cache="fp8"),
    ModelCheckpoint("a/b", cast="fp8_block"),
    ModelCheckpoint("a/b", cast="awq"),
    ModelCheckpoint("a/b", code=True),
)


def aggregated():
    """All degrees of instances of up to 32 GPUs, in machines of 4 and of 8."""
    loads = itertools.cycle(LOADS)  # of a number that divides no other here
    degrees = itertools.product((1, 3, 8, 16), (1, 2, 4), (1, 2, 8), (1, 2))
    for tp, groups, experts, pp in degrees:
        for ep in {1, experts, tp * groups} if groups > 1 or experts > 1 else {1}:
            if tp * groups % ep or tp * groups * pp > 32:
                continue
            for (copies, machine), chunk, (drafts, draft) in itertools.product(
                ((1, 4), (1, 8), (3, 8)), (math.inf, 512), ((0, ""), (2, ""), (2, "c/d"))
            ):
                one = Instance(tp, groups, ep, pp, copies, 100, chunk, drafts, machine=machine)
                mixture = groups > 1 or ep > 1
                yield LaunchedService(next(loads), (one,), ISL, CONTEXT, True, draft, mixture)


def pools():
    """Pairs of pools, of dense models and of mixtures, whose layers are of one kind or several."""
    kinds = list(itertools.product((2, 8), (1, 4), (1, 2)))
    for (a, g, p), (b, h, q), hybrid in itertools.product(kinds, kinds, (False, True)):
        mixture = g > 1 or h > 1
        first = Instance(a, g, a * g if mixture else 1, p, 2, 2 * g * p, role="prefill")
        second = Instance(b, h, b * h if mixture else 1, q, 1, 64, role="decode")
        yield LaunchedService(
            LOADS[0], (first, second), ISL, CONTEXT, experts=mixture, hybrid=hybrid
        )


def test_every_command_of_every_plan_is_one_that_its_engine_takes():
    printed = dict.fromkeys(NAMES.values(), 0)
    for plan in itertools.chain(aggregated(), pools()):
        for engine, launch in zip(NAMES, launches(plan), strict=True):
            assert launch.engine == NAMES[engine]
            assert launch.version == TABLE[engine]["version"]
            assert bool(launch.steps) != bool(launch.missing), launch
            if launch.steps:
                printed[launch.engine] += 1
                serves(engine, launch, plan)
    assert min(printed.values()) > 100, printed  # not by printing nothing


def why(engine, plan):
    (launch,) = launches(plan, engine)
    assert not launch.steps
    return " ".join(launch.missing)


PLAIN = LaunchedService(LOADS[0], (Instance(8),), ISL, CONTEXT, experts=True)


def test_what_an_engine_cannot_run_is_not_printed_and_says_why():
    """Each by the line of the engine's source that refuses it."""
    one = PLAIN.instances[0]
    some = PLAIN._replace(instances=(one._replace(ep=4),))
    assert "4" in why("vllm", some) and "4" in why("sglang", some)
    assert launches(some, "trtllm")[0].steps
    groups = PLAIN._replace(instances=(one._replace(tp=2, groups=4),))
    assert "4 groups of 2" in why("trtllm", groups) and launches(groups, "vllm")[0].steps
    cast = PLAIN._replace(checkpoint=ModelCheckpoint("a/b", cast="nvfp4"))
    assert all("nvfp4" in why(engine, cast) for engine in NAMES)
    stages = (one._replace(role="prefill"), one._replace(role="decode", pp=2))
    assert "NixlConnector" in why("vllm", PLAIN._replace(instances=stages))
    assert "decodes in 1 stage" in why("sglang", PLAIN._replace(instances=stages))
    drafts = PLAIN._replace(instances=(one._replace(drafts=2),))
    assert all("no heads" in why(engine, drafts) for engine in NAMES)
    long = PLAIN._replace(limit=2048.0)
    assert all("beyond the model's 2048" in why(engine, long) for engine in NAMES)
    tpu = PLAIN._replace(instances=(one._replace(maker="other"),))
    assert all("not an NVIDIA or AMD GPU" in why(engine, tpu) for engine in NAMES)
    amd = PLAIN._replace(instances=(one._replace(maker="AMD"),))
    assert "NVIDIA" in why("trtllm", amd) and launches(amd, "vllm")[0].steps


def test_a_rack_is_of_machines_of_four():
    """One fast domain of 72 GPUs in machines of 4 (nvidia.com/en-us/data-center/gb200-nvl72)."""
    model, system = load_model("deepseek-r1"), load_system("gb200_nvl72")
    pool = PlanPool(Layout(1, 16, 16, 1), 2, 800)
    plan = service("deepseek-r1", model, [system], [pool], (8192, 1024))
    head, rest = launches(plan, "vllm")[0].steps
    result = options("vllm", head.command)
    assert (result["--nnodes"], result["--data-parallel-size"]) == ("4", "16")
    assert options("vllm", rest.command)["--node-rank"] == "$RANK"
    assert result["model"] == "deepseek-ai/DeepSeek-R1" and "--quantization" not in result


def test_pools_of_one_machine_have_ports_and_gpus_of_their_own():
    """Two servers on one port, or on the same GPUs, do not start."""
    model, system = load_model("llama-3.1-8b"), load_system("h100_sxm")
    first, second, third = (
        PlanPool(Layout(tp, 1, 1, 1), 1, batch) for tp, batch in ((2, 1.0), (4, 30.0), (8, 30.0))
    )
    given = (3000.0, 500.0)
    both = service("llama-3.1-8b", model, [system], (first, second), given)
    for engine, launch in zip(NAMES, launches(both), strict=True):
        prefill, decode = (step.command for step in launch.steps[:2])
        assert prefill.startswith("CUDA_VISIBLE_DEVICES=0,1 ")
        assert decode.startswith("CUDA_VISIBLE_DEVICES=2,3,4,5 ")
        ports = [options(engine, command)["--port"] for command in (prefill, decode)]
        assert len({*ports, "8000"}) == 3  # 8000: what stands before both
        if launch.files:
            assert all(f":{port}" in launch.files["pools.yaml"] for port in ports)
    # 10 GPUs: two machines
    apart = service("llama-3.1-8b", model, [system], (first, third), given)
    chips = [system, load_system("h200_sxm")]
    other = service("llama-3.1-8b", model, chips, (first, second), given)
    for plan in (apart, other):
        assert not any("CUDA" in s.command for one in launches(plan) for s in one.steps)


def test_requests_that_come_at_random_have_more_places_than_are_filled_in_the_mean():
    pool, machine = PlanPool(Layout(8, 1, 1, 1), 1, 12.7), [(8, "NVIDIA")]
    (closed,) = instances([pool], machine)
    (opened,) = instances([pool], machine, arriving=True)
    (limited,) = instances([pool], machine, 64.0, arriving=True)
    # max_num_seqs of vLLM, vllm/config/scheduler.py and arg_utils.py, with which it is computed
    assert (closed.group_requests, opened.group_requests, limited.group_requests) == (13, 1024, 64)
    (asked,) = instances([pool], machine, 2048.0)
    assert asked.group_requests == 2048  # the plan is computed with it
    # passes of as many tokens as the open loop is computed with, chunk or not
    cut = pool._replace(layout=Layout(8, 1, 1, 1, chunk=512.0, drafts=1.0))
    (small,) = instances([cut], machine, arriving=True)
    assert [budget(one, PLAIN, "vllm") for one in (opened, small)] == [8192, 512]
    assert small.group_requests == 256  # each decodes two tokens
    assert [budget(one, PLAIN, "sglang") for one in (closed, opened)] == [16384, 16384]
    long = PLAIN._replace(isl=9000)  # TensorRT-LLM takes it whole where none arrives at random
    assert [budget(one, long, "trtllm") for one in (closed, opened)] == [9013, 8192]


def test_the_longest_of_requests_that_differ_is_not_their_mean():
    """It is stated, and never beyond the model's; what it is stands above the command."""
    model, system = load_model("llama-3.1-8b"), load_system("h100_sxm")
    pool = PlanPool(Layout(1, 1, 1, 1), 1, 30.0)
    given = "llama-3.1-8b", model, [system], [pool], (3000.0, 500.0)
    for longest, context in ((9000.2, "9129"), (200000.0, "131072")):
        built = launches(service(*given, arriving=True, longest=(longest, "nearly all requests")))
        for launch, (engine, name) in zip(built, LENGTH.items(), strict=True):
            assert options(engine, launch.steps[0].command)[name] == context
            of, seats = launch.comments
            assert context in of and "nearly all requests" in of
            assert "30 requests in flight" in seats
            assert launch.to_dict()["notes"] == [of, seats, *launch.notes]
    for equal, (engine, name) in zip(launches(service(*given)), LENGTH.items(), strict=True):
        assert options(engine, equal.steps[0].command)[name] == "3628"
        assert equal.comments == (
            "context 3628: 3500 tokens of a request, and 128 for a chat template",
        )
    all_of_it = service(*given[:4], (130000.0, 1072.0))  # tokens that the model does not have
    assert all_of_it.context == 131072 and "chat template" not in all_of_it.comments[0]


LENGTH = {"vllm": "--max-model-len", "sglang": "--context-length", "trtllm": "--max_seq_len"}


def test_hybrids_keep_caches_of_several_kinds():
    """Windows on some layers, or states beside caches."""
    plain = ("llama-3.1-8b", "deepseek-v3", "mistral-7b")
    several = ("gpt-oss-20b", "gemma-3-27b", "jamba-v0.1", "nemotron-h-8b")
    found = {x: traits(load_model(x).architecture)["hybrid"] for x in (*plain, *several)}
    assert found == dict.fromkeys(plain, False) | dict.fromkeys(several, True)
