// lf_sim with its clock, a cycle at a time, and its registers through AXI4-Lite.
#pragma once

#include <cstdint>
#include <memory>

#include "Vlf_sim.h"
#include "verilated.h"

class Simulation {
 public:
  explicit Simulation(VerilatedContext* context) : model_(std::make_unique<Vlf_sim>(context, "top")) {
    model_->clk_i = 0;
    model_->rst_ni = 0;
    model_->awvalid_i = 0;
    model_->wvalid_i = 0;
    model_->arvalid_i = 0;
    model_->bready_i = 1;
    model_->rready_i = 1;
    context->assertOn(false);  // registers may hold anything before reset
    model_->eval();
    Cycle();
    Cycle();
    context->assertOn(true);
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
    model_->awvalid_i = 1;
    model_->wvalid_i = 1;
    model_->awaddr_i = static_cast<uint16_t>(address);
    model_->wdata_i = value;
    Accepted(model_->awready_o);  // with the data
    model_->awvalid_i = 0;
    model_->wvalid_i = 0;
    while (!model_->bvalid_o) Cycle();
    Cycle();
  }

  uint32_t Read(uint32_t address) {
    model_->arvalid_i = 1;
    model_->araddr_i = static_cast<uint16_t>(address);
    Accepted(model_->arready_o);
    model_->arvalid_i = 0;
    while (!model_->rvalid_o) Cycle();
    const uint32_t found = model_->rdata_o;
    Cycle();
    return found;
  }

  bool interrupt() const { return model_->irq_o != 0; }
  uint64_t cycles() const { return cycles_; }

 private:
  void Accepted(const uint8_t& ready) {
    model_->eval();
    while (!ready) Cycle();
    Cycle();
  }

  std::unique_ptr<Vlf_sim> model_;
  uint64_t cycles_ = 0;
};
