// What must hold at every rising edge of a clock, but in reset. Simulation checks it with --assert; synthesis
// and model checking leave it out.
//
//   `LF_ASSERT(Label, property, message)    what fails is named by its place, its label and the message
//   `LF_HELD(Label, valid, ready, payload)  what is offered stays as it is until it is taken
//
// A clock other than clk_i, and a reset other than !rst_ni, may follow.
`ifndef LF_ASSERT_SVH
`define LF_ASSERT_SVH

`ifdef SYNTHESIS
`define LF_ASSERT(label, condition, message, clock = clk_i, reset = !rst_ni)
`else
`define LF_ASSERT(label, condition, message, clock = clk_i, reset = !rst_ni) \
  label: assert property (@(posedge clock) disable iff (reset) condition) \
    else $error(`"label: %s`", message);
`endif

`define LF_HELD(label, valid, ready, payload, clock = clk_i, reset = !rst_ni) \
  `LF_ASSERT(label, (valid) && !(ready) |=> (valid) && $stable(payload), \
             "what is offered changes before it is taken", clock, reset)

`endif
