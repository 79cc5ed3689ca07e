#!/usr/bin/env bash
# @title@: its benchmark
#
# ./bench.sh # where the servers run; results are in runs/
#
# CLIENT=vllm, sglang or aiperf, which must be installed; URL, INSTANCE_URL: servers elsewhere
set -euo pipefail
model=@model@
url=${URL:-http://localhost:8000}
instance=${INSTANCE_URL:-http://localhost:@port@}
client=${CLIENT:-@client@}
mkdir -p runs

run() { # NAME URL ISL OSL PROMPTS concurrency|rate LOAD [TOKENS that prompts share]
  local name=$1 url=$2 isl=$3 osl=$4 prompts=$5 kind=$6 load=$7 prefix=${8:-0}
  local option=--max-concurrency
  if [ "$prefix" != 0 ] && [ "$client" != vllm ]; then
    echo "$client is told of no shared prefix: the plan counts $prefix tokens as cached" >&2
  fi
  if [ "$kind" = rate ]; then option=--request-rate; fi
  case $client in
  vllm)
    vllm bench serve --backend vllm --base-url "$url" --model "$model" @code@ \
      --dataset-name random --random-input-len "$((isl - prefix))" --random-prefix-len "$prefix" \
      --random-output-len "$osl" --ignore-eos --num-prompts "$prompts" "$option" "$load" \
      --percentile-metrics ttft,tpot,itl,e2el \
      --save-result --save-detailed --result-dir runs --result-filename "$name.json"
    ;;
  sglang)
    python3 -m sglang.bench_serving --backend sglang-oai --base-url "$url" --model "$model" \
      --dataset-name random --random-input-len "$isl" --random-output-len "$osl" \
      --random-range-ratio 1 --num-prompts "$prompts" "$option" "$load" \
      --output-details --output-file "runs/$name.jsonl"
    ;;
  aiperf)
    if [ "$kind" = concurrency ]; then option=--concurrency; fi
    aiperf profile --model "$model" --url "$url" --endpoint-type completions --streaming \
      --synthetic-input-tokens-mean "$isl" --synthetic-input-tokens-stddev 0 \
      --output-tokens-mean "$osl" --output-tokens-stddev 0 \
      --extra-inputs ignore_eos:true --extra-inputs "min_tokens:$osl" \
      --request-count "$prompts" "$option" "$load" --artifact-dir "runs/$name"
    cp "runs/$name/profile_export_aiperf.json" "runs/$name.json"
    ;;
  *)
    echo "CLIENT is vllm, sglang or aiperf" >&2
    exit 2
    ;;
  esac
}

# the load of the plan@expected@
@planned@
@others@
