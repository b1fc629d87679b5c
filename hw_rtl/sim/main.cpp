// Runs one program on lf_sim: writes the registers, clocks until the accelerator is done, prints status and counters as one line of JSON.
//
// Arguments: NAME=NUMBER for the registers below and for `limit` (cycles); everything with a plus sign goes to the model (see lf_dram.sv).
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "Vlf_sim.h"
#include "lf_isa.h"
#include "verilated.h"

namespace {

constexpr uint64_t kProgressCycles = 4'000'000;  // between two lines on stderr

class Simulation {
 public:
  explicit Simulation(VerilatedContext* context) : model_(std::make_unique<Vlf_sim>(context, "top")) {
    model_->clk_i = 0;
    model_->rst_ni = 0;
    model_->reg_valid_i = 0;
    model_->eval();
    Cycle();
    Cycle();
    model_->rst_ni = 1;
    Cycle();
    cycles_ = 0;
  }
  ~Simulation() { model_->final(); }

  void Cycle() {
    model_->clk_i = 1;
    model_->eval();
    model_->clk_i = 0;
    model_->eval();
    ++cycles_;
  }

  void Write(uint32_t address, uint32_t value) {
    model_->reg_write_i = 1;
    model_->reg_wdata_i = value;
    Access(address);
  }

  uint32_t Read(uint32_t address) {
    model_->reg_write_i = 0;
    Access(address);
    return model_->reg_rdata_o;
  }

  bool done() const { return model_->done_o != 0; }
  uint64_t cycles() const { return cycles_; }

 private:
  void Access(uint32_t address) {
    model_->reg_valid_i = 1;
    model_->reg_addr_i = static_cast<uint16_t>(address);
    Cycle();
    model_->reg_valid_i = 0;
  }

  std::unique_ptr<Vlf_sim> model_;
  uint64_t cycles_ = 0;
};

struct Setting {
  const char* name;
  uint32_t address;
};

constexpr Setting kSettings[] = {
    {"program_address", lf_isa::kProgramAddress}, {"program_words", lf_isa::kProgramWords}, {"read_base", lf_isa::kReadBase},
    {"read_limit", lf_isa::kReadLimit},           {"write_base", lf_isa::kWriteBase},       {"write_limit", lf_isa::kWriteLimit},
    {"watchdog", lf_isa::kWatchdog},
};

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
      std::fprintf(stderr, "found the argument '%s'; accepted: limit=N, registers as NAME=N, +NAME=VALUE\n", argv[k]);
      return 2;
    }
  }
  simulation.Write(lf_isa::kControl, 3);
  uint64_t report = simulation.cycles() + kProgressCycles;
  while (simulation.cycles() < limit) {
    for (int k = 0; k < 64 && !simulation.done(); ++k) simulation.Cycle();
    if (simulation.done() || context->gotFinish()) break;
    if (simulation.cycles() >= report) {
      report += kProgressCycles;
      std::fprintf(stderr, "cycle %" PRIu64 "\n", simulation.cycles());
    }
  }
  const uint64_t cycles = simulation.cycles();
  std::printf("{\"status\": %u, \"error\": %u, \"error_index\": %u, \"cycles\": %" PRIu64 ", \"counters\": [", simulation.Read(lf_isa::kStatus),
              simulation.Read(lf_isa::kError), simulation.Read(lf_isa::kErrorIndex), cycles);
  for (uint32_t k = 0; k < lf_isa::kNumberOfCounters; ++k) {
    const uint64_t low = simulation.Read(lf_isa::kCounters + 8 * k);
    const uint64_t high = simulation.Read(lf_isa::kCounters + 8 * k + 4);
    std::printf("%s%" PRIu64, k ? ", " : "", high << 32 | low);
  }
  std::printf("]}\n");
  return 0;
}
