// Runs one program on lf_sim: writes the registers, clocks until the accelerator is done, prints status and
// counters as one line of JSON.
//
// Arguments: NAME=NUMBER for registers and for `limit` (cycles); everything with a plus sign goes to the
// model (see lf_dram.sv).
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "lf_registers.h"
#include "simulation.h"
#include "verilated.h"

namespace {

constexpr uint64_t kProgressCycles = 4'000'000;  // between two lines on stderr

struct Setting {
  const char* name;
  uint32_t address;
};

#define SETTING(name, offset) {#name, offset},
constexpr Setting kSettings[] = {LF_EACH_REGISTER(SETTING)};
#undef SETTING

}  // namespace

int main(int argc, char** argv) {
  auto context = std::make_unique<VerilatedContext>();
  context->commandArgs(argc, argv);
  Simulation simulation(context.get());
  uint64_t limit = UINT64_MAX;
  for (int k = 1; k < argc; ++k) {
    const char* equals = std::strchr(argv[k], '=');
    if (argv[k][0] == '+') continue;
    const std::string name(argv[k], equals ? equals - argv[k] : std::strlen(argv[k]));
    const uint64_t value = equals ? std::strtoull(equals + 1, nullptr, 0) : 0;
    bool known = name == "limit";
    if (known) limit = value;
    for (const Setting& setting : kSettings) {
      if (name != setting.name) continue;
      simulation.Write(setting.address, static_cast<uint32_t>(value));
      known = true;
    }
    if (!known || !equals) {
      std::fprintf(stderr, "found the argument '%s'; accepted: limit=N, registers as NAME=N, +NAME=VALUE\n",
                   argv[k]);
      return 2;
    }
  }
  simulation.Write(LF_REG_INTERRUPT_ENABLE, LF_INTERRUPT_ENABLE_DONE);
  simulation.Write(LF_REG_CONTROL, LF_CONTROL_START | LF_CONTROL_CLEAR);
  uint64_t report = simulation.cycles() + kProgressCycles;
  while (simulation.cycles() < limit) {
    for (int k = 0; k < 64 && !simulation.interrupt(); ++k) simulation.Cycle();
    if (simulation.interrupt() || context->gotFinish()) break;
    if (simulation.cycles() >= report) {
      report += kProgressCycles;
      std::fprintf(stderr, "cycle %" PRIu64 "\n", simulation.cycles());
    }
  }
  const uint64_t cycles = simulation.cycles();
  std::printf("{\"status\": %u, \"error\": %u, \"error_index\": %u, \"cycles\": %" PRIu64 ", \"counters\": [",
              simulation.Read(LF_REG_STATUS), simulation.Read(LF_REG_ERROR),
              simulation.Read(LF_REG_ERROR_INDEX), cycles);
  for (uint32_t k = 0; k < LF_COUNTERS; ++k) {
    const uint64_t low = simulation.Read(LF_REG_COUNTERS + 8 * k);
    const uint64_t high = simulation.Read(LF_REG_COUNTERS + 8 * k + 4);
    std::printf("%s%" PRIu64, k ? ", " : "", high << 32 | low);
  }
  std::printf("]}\n");
  return 0;
}
