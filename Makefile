# `make help` lists what can be done. Everything runs in .venv, which is made when it is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.DEFAULT_GOAL := help
.PHONY: $(shell sed -n 's/^\([a-z0-9-]*\):.*/\1/p' $(MAKEFILE_LIST))

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

$(VENV)/.base: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt $(VENV)/.base
	$(INSTALL) "$$(grep '^torch==' constraints.txt)"  # alone: this version has a build for CPUs
	$(INSTALL) --editable '.[dev]'
	@touch $@

env: $(VENV)/.dev  ## Make the environment with everything that the checks need

demo: $(VENV)/.base  ## Environment, then the main job: EfficientNet-B3 read from ONNX, searched, certified
	$(BIN)/lfopt search --config configs/effnet_b3.yaml
	$(BIN)/lfopt search --config configs/effnet_b3_beyond.yaml --out runs/efficientnet_b3_beyond

lint: $(VENV)/.dev  ## Format check, lint, types, import floors
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --threads 2
	$(BIN)/lint-imports

test: lint  ## Environment, then all checks
	$(BIN)/pytest -n 2 -m "not slow"

test-slow: $(VENV)/.dev  ## Every test with all of its cases, and those that take minutes
	LFOPT_CASES=all $(BIN)/pytest -n 2 -m "not sanitize"

test-sanitize: $(VENV)/.dev  ## Generated C under sanitizers, 5,000 random networks among it: an hour
	$(BIN)/pytest -n 2 -m sanitize

test-rtl-slow: $(VENV)/.dev  ## Whole networks, hundreds of random plans, thousands of corrupted programs in RTL
	$(BIN)/pytest -n 2 -m slow tests/hw_rtl

docs: $(VENV)/.dev  ## The documentation: tables from the code, then HTML in build/docs
	PYTHONPATH=. $(BIN)/python docs/reference.py
	$(BIN)/sphinx-build -W --keep-going -q docs build/docs

format: $(VENV)/.dev  ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench-search: $(VENV)/.dev  ## Plans per second, and the exact search on every network
	$(BIN)/python benchmarks/bench_search.py --results docs/results

bench-beyond: $(VENV)/.dev  ## What scheme all, and each part of it, brings: bytes, MACs, cycles
	$(BIN)/python benchmarks/bench_beyond.py --results docs/results

bench-balanced: $(VENV)/.dev  ## Balanced plans of 20 networks on three chips beside epilogue fusion: an hour
	$(BIN)/python benchmarks/bench_balanced.py --results docs/results

bench-paper: $(VENV)/.dev  ## The paper's tables II to V, guided and not; --full: with its budgets
	$(BIN)/python benchmarks/bench_paper.py --results docs/results

bench-guidance: $(VENV)/.dev  ## What each explainer brings a search at a small budget, and its fidelity
	$(BIN)/python benchmarks/bench_guidance.py --results docs/results

bench-rectify: $(VENV)/.dev  ## How often, and how well, each explainer's cuts break groups that do not fit
	$(BIN)/python benchmarks/bench_rectify.py --results docs/results

bench-validity: $(VENV)/.dev  ## How right verdicts are on families left out, beside simple baselines
	$(BIN)/python benchmarks/bench_validity.py --results docs/results
	$(BIN)/python benchmarks/bench_validity.py --schemes strips sliced gated --groups 4000 --drawn 4 \
		--results docs/results

bench-surrogate: $(VENV)/.dev  ## Surrogates of the judge of cycles: error, and what searches gain by them
	$(BIN)/python benchmarks/bench_surrogate.py --results docs/results

surrogate: $(VENV)/.dev  ## Train the surrogate that ships, from nothing
	$(BIN)/python benchmarks/bench_surrogate.py --networks --weights explainers/weights/cycles.safetensors

bench-cpu: $(VENV)/.dev  ## Compiled plans against ONNX Runtime, OpenVINO, MNN and ncnn
	$(BIN)/python benchmarks/peers.py
	$(BIN)/python benchmarks/bench_cpu.py --threads 1 2 --results docs/results
	$(BIN)/python benchmarks/bench_cpu.py --threads 1 2 --plans exact --peers openvino --trained --element bf16 \
		--results docs/results

bench-operators: $(VENV)/.dev  ## Every operator alone, compiled, against ONNX Runtime: three shapes of each
	$(BIN)/python benchmarks/bench_operators.py --results docs/results

bench-int8: $(VENV)/.dev  ## Networks in int8, compiled, against ONNX Runtime (OpenVINO) on the same QDQ files
	$(BIN)/python benchmarks/bench_int8.py --threads 1 2 --results docs/results

bench-quantize: $(VENV)/.dev  ## Accuracy of trained networks in int8, by calibration: half an hour
	$(BIN)/python benchmarks/peers.py
	$(BIN)/python benchmarks/bench_quantize.py --alone ppocr_cls orientation ppocr_rec --results docs/results

bench-compile: $(VENV)/.dev  ## Seconds to plan, print and compile every network of the zoo
	$(BIN)/python benchmarks/bench_compile.py --threads 1 2 --results docs/results

bench-conformance: $(VENV)/.dev  ## ONNX's own cases on generated C: which pass, why others are refused
	$(BIN)/python benchmarks/bench_conformance.py --results docs/results

bench-attention: $(VENV)/.dev  ## Attention alone, compiled, against ONNX Runtime and OpenVINO
	$(BIN)/python benchmarks/peers.py
	$(BIN)/python benchmarks/bench_attention.py --threads 1 2 --results docs/results

bench-torch: $(VENV)/.dev  ## Modules of PyTorch by torch.compile: our backend, inductor, eager
	$(BIN)/python benchmarks/bench_torch.py --threads 1 2 --results docs/results

bench-memory: $(VENV)/.dev  ## Peak memory of a process: our program, ours from Python, ONNX Runtime
	$(BIN)/python benchmarks/bench_cpu_memory.py --results docs/results

bench-traffic: $(VENV)/.dev  ## Misses of a simulated cache beside predicted traffic; needs valgrind
	$(BIN)/python benchmarks/bench_traffic.py --results docs/results

bench-rtl: $(VENV)/.dev  ## Networks on the accelerator in RTL: bytes counted in hardware, cycles
	$(BIN)/python benchmarks/bench_rtl.py --results docs/results

bench-energy: $(VENV)/.dev  ## Energy by level beside published breakdowns of Eyeriss and a chip like Simba
	$(BIN)/python benchmarks/bench_energy.py --results docs/results

bench-fit: $(VENV)/.dev  ## Chips fitted to layers of the accelerator in RTL, and to tables of Eyeriss and VTA
	$(BIN)/python benchmarks/bench_fit.py --results docs/results

bench-vela: $(VENV)/.dev  ## The same networks by Arm's Vela: bytes named and bytes estimated
	$(INSTALL) --editable '.[vela]'
	$(BIN)/python benchmarks/bench_vela.py --jobs 2 --results docs/results

bench-fusion: $(VENV)/.dev  ## Fused layers under each planner, beside DNNFusion's table 5 and ONNX Runtime
	$(BIN)/python benchmarks/bench_fusion.py --results docs/results

bench-limits: $(VENV)/.dev  ## Whether searches keep their time limit and leave steps: MODELS=FOLDER, or the zoo
	$(BIN)/python benchmarks/bench_limits.py $(if $(MODELS),--models $(MODELS)) --results docs/results

bench-batch: $(VENV)/.dev  ## What 10,000 jobs cost beside the jobs: one process, two, a Dask cluster
	$(BIN)/python benchmarks/bench_batch.py --results docs/results

rtl-mutate: $(VENV)/.dev  ## Small changes to the SystemVerilog, and which check finds each: an hour
	PYTHONPATH=. nice $(BIN)/python benchmarks/rtl_mutate.py --results docs/results

rtl-formal: $(VENV)/.dev  ## Proofs of rings, remainders, queues and memory port: bounded model checking
	$(INSTALL) --editable '.[formal]'
	$(BIN)/pytest tests/hw_rtl/test_formal.py

rtl-area: $(VENV)/.dev  ## Cells and longest paths of the accelerator's modules by Yosys: 15 minutes
	$(INSTALL) --editable '.[area]'
	PYTHONPATH=. $(BIN)/python benchmarks/rtl_area.py --results docs/results

rtl-coverage: $(VENV)/.dev  ## Lines of the SystemVerilog that tests and random plans reach
	PYTHONPATH=. $(BIN)/python benchmarks/rtl_coverage.py --results docs/results

clean:  ## Remove the environment and what tools leave behind
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis .import_linter_cache dist build
