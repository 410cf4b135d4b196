# Every target sets up .venv by itself, once; `make` alone lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
WORKERS ?= 2
DIGITS := fixtures/digits
BENCH := build/bench
ZOO ?= $(BENCH)/zoo

help:
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 24

venv: $(VENV)/.ready-all  ## set up .venv with every extra and the development tools

demo: $(VENV)/.ready-demo  ## export the digits model to int8 TFLite, verified at every step
	$(BIN)/convertkit export $(DIGITS)/model.pt --target tflite --int8 --calib $(DIGITS)/calib.npz \
		--eval $(DIGITS)/test.npz --max-drop 0.5 --output build/demo --force

test: $(VENV)/.ready-test  ## run all tests but the nightly ones
	$(BIN)/python -m pytest -m "not nightly" --numprocesses $(WORKERS) --dist worksteal --timeout 900

AREA_contracts := tests/contracts
AREA_coreml := tests/targets/coreml
AREA_core := $(wildcard tests/test_*.py) tests/engines tests/findings tests/looking tests/parity tests/plugins tests/report tests/tasks
AREA_docs := tests/docs
AREA_jax := tests/converters/jax
AREA_keras := tests/converters/keras
AREA_micro := tests/targets/micro
AREA_mobile := tests/targets/mobile
AREA_onnx := tests/onnx
AREA_onnxruntime := tests/targets/onnxruntime
AREA_pytorch := tests/converters/pytorch
AREA_quantization := tests/quantization
AREA_release := tests/release
AREA_serving := tests/targets/serving tests/targets/tf_serving
AREA_stablehlo := tests/converters/stablehlo
AREA_tensorflow := tests/converters/tensorflow
AREA_huggingface := tests/converters/huggingface
AREA_mxnet := tests/converters/mxnet
AREA_ethos-u := tests/targets/ethos_u
AREA_openvino := tests/targets/openvino
AREA_executorch := tests/targets/executorch
AREA_paddle := tests/converters/paddle
AREA_genai := tests/targets/genai
AREA_litert-lm := tests/targets/litert_lm
AREA_iree := tests/targets/iree
AREA_mnn := tests/targets/mnn
AREA_ncnn := tests/targets/ncnn
AREA_tvm := tests/targets/tvm
AREA_forms := tests/targets/forms
AREA_stablehlo-target := tests/targets/stablehlo
AREA_qnn := tests/targets/qnn
AREA_litert-npu := tests/targets/litert_npu
AREA_ort-mobile := tests/targets/ort_mobile
AREA_tensorrt := tests/targets/tensorrt
AREA_tflite := tests/targets/tflite
AREA_tflite-source := tests/converters/tflite

# test-tflite, test-pytorch, …: an area in less than a minute, without the tests that tests/slow.txt lists
test-%: $(VENV)/.ready-all
	@test -n "$(AREA_$*)" || { echo "no such area; there are: $(patsubst AREA_%,%,$(filter AREA_%,$(.VARIABLES)))"; exit 2; }
	$(BIN)/python -m pytest $(AREA_$*) -m "not nightly and not slow" --numprocesses $(WORKERS) --dist worksteal --timeout 300

nightly: $(VENV)/.ready-nightly  ## run the full grids and the long property tests
	$(BIN)/python -m pytest -m nightly --timeout 14400

lint: $(VENV)/.ready-all  ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.ready-all  ## measure start-up, zoo, conversions and a 3 GB model (PEERS=DIR ONNX2TF=PYTHON: peers, too)
	$(BIN)/python bench/startup.py
	test -e $(ZOO)/gpt_block.eval.npz || $(BIN)/python bench/make_zoo.py $(ZOO)
	$(BIN)/python bench/tflite_zoo.py $(ZOO) $(BENCH)/out $(if $(PEERS),--peers $(PEERS))
	$(BIN)/python bench/conversion_time.py $(ZOO) --json $(BENCH)/conversion.json $(if $(ONNX2TF),--onnx2tf $(ONNX2TF))
	$(BIN)/python bench/large_model.py --json $(BENCH)/large.json
	$(BIN)/python bench/render.py $(BENCH)/out/zoo.json $(if $(PEERS),--peers $(PEERS)/peers.json) \
		--conversion $(BENCH)/conversion.json --large $(BENCH)/large.json > $(BENCH)/benchmarks.md

conformance: $(VENV)/.ready-all  ## run ONNX's operator cases through the TFLite target and write the page of docs/
	$(BIN)/python tests/conformance/board.py --out docs/measurements/conformance-onnx.md

conformance-command: $(VENV)/.ready-all  ## the same through the whole export, without calibration data
	$(BIN)/python tests/conformance/command_board.py --out docs/measurements/conformance-command.md

conformance-openvino: $(VENV)/.ready-all  ## the same through the OpenVINO target alone
	mkdir -p build
	$(BIN)/python tests/conformance/command_board.py --target openvino --json build/conformance-openvino.jsonl $(BOARD) --out docs/measurements/conformance-openvino.md

conformance-engine: $(VENV)/.ready-all  ## the same through ENGINE=qnn, ethos-u, executorch, iree, mnn, ncnn or rknn (installed; BOARD="--sample --resume")
	mkdir -p build
	$(BIN)/python tests/conformance/command_board.py --target $(ENGINE) --json build/conformance-$(ENGINE).jsonl $(BOARD) --out docs/measurements/conformance-$(ENGINE).md

conformance-tf-serving: $(VENV)/.ready-all  ## the same through SavedModels, in TensorFlow
	$(BIN)/python tests/targets/tf_serving/served_suite.py --out docs/measurements/conformance-tf-serving.md

conformance-coreml: $(VENV)/.ready-all  ## the same through the Core ML target and its evaluator
	mkdir -p build
	$(BIN)/python tests/conformance/board.py --target coreml --json build/conformance-coreml.jsonl $(BOARD) --out docs/measurements/conformance-coreml.md

conformance-stablehlo: $(VENV)/.ready-all  ## the same for StableHLO, on the programs among the real cases
	$(BIN)/python tests/converters/stablehlo/conformance.py --write docs/measurements/conformance-stablehlo.md

docs: $(VENV)/.ready-all  ## write the generated pages, check every link, build the manual into build/site
	$(BIN)/python docs/generate.py
	$(BIN)/python -m mkdocs build --quiet

wheel: $(VENV)/.ready-all  ## build the sdist, and the wheel from it, into dist/
	rm -rf dist
	$(BIN)/python -m build --no-isolation

fixtures: $(VENV)/.ready-all  ## train the models of fixtures/ again
	for script in fixtures/*/train.py; do $(BIN)/python $$script || exit 1; done

clean:  ## remove what builds and tests leave behind; .venv stays
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("convertkit needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)

# torch comes first and alone: where its CPU build was installed by hand (README), it is left alone.
$(VENV)/.ready-demo: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) torch
	$(PIP) --editable '.[torch,tflite,images]'
	@touch $@

$(VENV)/.ready-all: $(VENV)/.ready-demo
	$(PIP) --editable '.[all,dev]'
	@touch $@

# Engines that take at most 2 minutes and 500 MB; IREE is larger, and for the nightly run alone.
$(VENV)/.ready-test: $(VENV)/.ready-all
	$(PIP) --editable '.[all,dev,executorch]'
	$(BIN)/convertkit engines install tvm --yes
	@touch $@

$(VENV)/.ready-nightly: $(VENV)/.ready-test
	$(BIN)/convertkit engines install iree --yes
	@touch $@

.PHONY: help venv demo test nightly lint bench conformance conformance-command conformance-openvino conformance-engine conformance-tf-serving conformance-coreml conformance-stablehlo docs wheel fixtures clean
