// The driver in C (lf_device.c) on lf_sim, as a processor with a cache would run it.
//
// Arguments: a folder with manifest.bin, program.bin and constants.bin; a file with the inputs, one behind
// the other; a file for the outputs; everything with a plus sign goes to the model (see lf_dram.sv). The
// stream is run, aborted in the middle, and run again. Prints one line of JSON.
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "Vlf_sim__Dpi.h"
#include "lf_device.h"
#include "simulation.h"
#include "svdpi.h"
#include "verilated.h"

namespace {

constexpr uint32_t kAddress = 5 * LF_PAGE_BYTES;  // of the memory that the driver gives to the accelerator

// The processor: its memory is apart from the accelerator's until the driver cleans or invalidates.
struct Processor {
  Simulation* simulation = nullptr;
  lf_device device = {};
  std::vector<uint8_t> memory;
  uint64_t stop = UINT64_MAX;  // cycle in which it does not want to wait any longer
  unsigned interrupts = 0;
};

Processor* Of(void* context) { return static_cast<Processor*>(context); }

uint32_t Read(void* context, uint32_t offset) { return Of(context)->simulation->Read(offset); }

void Write(void* context, uint32_t offset, uint32_t value) { Of(context)->simulation->Write(offset, value); }

uint32_t WordOf(const Processor* of, const uint8_t* at) {
  return (kAddress + static_cast<uint32_t>(at - of->memory.data())) / 4;
}

void Clean(void* context, const void* from, size_t bytes) {
  const auto* data = static_cast<const uint8_t*>(from);
  for (size_t k = 0; k < bytes; k += 4) {
    uint32_t value = 0;
    for (size_t b = 0; b < 4 && k + b < bytes; ++b) value |= static_cast<uint32_t>(data[k + b]) << (8 * b);
    lf_dram_write(WordOf(Of(context), data + k), value);
  }
}

void Invalidate(void* context, void* from, size_t bytes) {
  auto* data = static_cast<uint8_t*>(from);
  for (size_t k = 0; k < bytes; ++k) {
    const uint32_t word = WordOf(Of(context), data + k / 4 * 4);
    data[k] = static_cast<uint8_t>(lf_dram_read(word) >> (8 * (k % 4)));
  }
}

bool Wait(void* context) {
  Processor* of = Of(context);
  for (int k = 0; k < 1000 && !of->simulation->interrupt(); ++k) {
    if (of->simulation->cycles() >= of->stop) return false;
    of->simulation->Cycle();
  }
  if (of->simulation->interrupt()) {  // the handler
    lf_interrupt(&of->device);
    ++of->interrupts;
  }
  return true;
}

std::vector<uint8_t> FileOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) std::fprintf(stderr, "%s: cannot be read\n", path.c_str());
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

size_t BytesOf(const lf_map& map) { return static_cast<size_t>(map.channels) * map.rows * map.columns; }

// All outputs, one behind the other.
std::vector<uint8_t> Outputs(const lf_device& device) {
  std::vector<uint8_t> found;
  lf_map map;
  for (uint32_t k = 0; lf_output(&device, k, &map) == LF_OK; ++k) {
    found.resize(found.size() + BytesOf(map));
    lf_unpack(&device, &map, found.data() + found.size() - BytesOf(map));
  }
  return found;
}

int Refused(const char* what, lf_result result) {
  std::fprintf(stderr, "%s: %s\n", what, lf_result_text(result));
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  auto context = std::make_unique<VerilatedContext>();
  context->commandArgs(argc, argv);
  if (argc < 4) {
    std::fprintf(stderr, "found %d arguments; accepted: FOLDER INPUTS OUTPUTS +NAME=VALUE\n", argc - 1);
    return 2;
  }
  Simulation simulation(context.get());
  svSetScope(svGetScopeFromName("top.lf_sim.u_dram"));
  const std::string folder = argv[1];
  const auto manifest = FileOf(folder + "/manifest.bin"), program = FileOf(folder + "/program.bin"),
             constants = FileOf(folder + "/constants.bin");
  const auto inputs = FileOf(argv[2]);

  Processor processor;
  processor.simulation = &simulation;
  processor.memory.assign(size_t{1} << 22, 0xA5);
  lf_device& device = processor.device;
  const lf_platform platform = {&processor, Read, Write, nullptr, Clean, Invalidate, Wait, true};
  const lf_stream stream = {manifest.data(), manifest.size(),  program.data(),
                            program.size(),  constants.data(), constants.size()};
  const lf_memory memory = {processor.memory.data(), kAddress, processor.memory.size()};
  lf_result result = lf_init(&device, &platform);
  if (result == LF_OK) result = lf_load(&device, &stream, &memory);
  if (result != LF_OK) return Refused("load", result);

  lf_map map;
  size_t at = 0;
  for (uint32_t k = 0; lf_input(&device, k, &map) == LF_OK; at += BytesOf(map), ++k) {
    if (at + BytesOf(map) > inputs.size()) return Refused("inputs are too short", LF_NO_SUCH_MAP);
    lf_pack(&device, &map, inputs.data() + at);
  }
  result = lf_run(&device);
  if (result != LF_OK) {
    const lf_fault fault = lf_last_fault(&device);
    std::fprintf(stderr, "%s: %s, %u\n", lf_error_text(fault.code), lf_queue_text(fault.queue), fault.index);
    return 1;
  }
  const std::vector<uint8_t> first = Outputs(device);
  std::vector<uint64_t> counters;
  for (uint32_t k = 0; k < LF_COUNTERS; ++k)
    counters.push_back(lf_read_counter(&device, static_cast<lf_counter>(k)));

  // In the middle of another run the processor loses its patience.
  lf_start(&device);
  processor.stop = simulation.cycles() + counters[LF_COUNT_CYCLES] / 2;
  const lf_result patience = lf_wait(&device);
  processor.stop = UINT64_MAX;
  const lf_result aborted = lf_abort(&device);
  const lf_fault fault = lf_last_fault(&device);
  const lf_result again = lf_run(&device);
  const bool same = Outputs(device) == first;

  std::ofstream(argv[3], std::ios::binary)
      .write(reinterpret_cast<const char*>(first.data()), static_cast<std::streamsize>(first.size()));
  std::printf("{\"results\": [%d, %d, %d], \"fault\": %d, \"same\": %d, \"interrupts\": %u, \"counters\": [",
              patience, aborted, again, fault.code, same, processor.interrupts);
  for (size_t k = 0; k < counters.size(); ++k) std::printf("%s%" PRIu64, k ? ", " : "", counters[k]);
  std::printf("]}\n");
  return 0;
}
