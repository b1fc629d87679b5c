// Starts and stops the core: clears its units, keeps the first error, waits until the memory port is quiet.
//
// An error lets end what is under way; a run that is given up (by software, or for its length) waits for the
// memory port alone, and leaves the units cleared. Memory that does not answer ends either by the watchdog.
`include "lf_assert.svh"

module lf_control
  import lf_isa_pkg::*;
  import lf_dma_pkg::*;
  import lf_port_pkg::*;
(
  input  logic         clk_i,
  input  logic         rst_ni,
  input  logic         start_i,
  input  logic         abort_i,         // pulse: give up the run
  input  logic [31:0]  watchdog_i,      // cycles of silence; 0: never
  input  logic [31:0]  cycle_limit_i,   // of a run; 0: never
  // How the units do.
  input  fault_t [3:0] fault_i,         // of SEQUENCER, LOAD, STORE, EXEC
  input  queue_e       fault_queue_i,   // of the sequencer's
  input  logic         finished_i,      // HALT has been run, and all queues are empty
  input  logic         progress_i,      // anything moved
  input  logic         moved_i,         // anything crossed the memory port
  input  logic         bus_idle_i,
  input  logic         exec_idle_i,     // no command is under way, or none ever will be again
  input  logic [3:1]   under_way_i,     // LOAD, STORE, EXEC have a command under way
  input  logic [3:0][31:0] completed_i, // commands (words) finished, as in fault_i
  // What they are told.
  output logic         unit_rst_no,     // clears every unit, as the clock rises
  output logic         run_o,
  output logic         stop_o,          // start nothing more
  output outcome_t     outcome_o
);
  typedef enum logic [2:0] {
    Idle,
    Settle,  // memory still owes something to a run that timed out
    Clear,
    Begin,
    Run,
    Drain,   // an error: what is under way ends
    Quit     // given up: what is under way at the memory port ends
  } state_e;

  state_e      state_d, state_q;
  logic        stop_d, stop_q;
  logic        unit_rst_nq;
  logic        done_q;
  logic        failed_q;
  error_e      error_q;
  queue_e      queue_q;
  logic [31:0] index_q;
  logic [31:0] silence_q;  // cycles since anything moved
  logic [31:0] cycles_q;   // of the run
  logic        quits_q;    // the run is given up
  fault_t [3:0] fault_q;   // of the cycle before
  queue_e      fault_queue_q;

  logic        silent;
  logic        over;
  logic        quits;
  logic        fails;
  logic        ends;
  error_e      error;
  queue_e      queue;
  logic [31:0] index;

  assign silent = watchdog_i != '0 && silence_q >= watchdog_i;
  assign over   = cycle_limit_i != '0 && cycles_q >= cycle_limit_i;
  assign quits  = (abort_i || over) && state_q != Idle && !quits_q;

  always_comb begin
    fails = 1'b0;
    ends  = 1'b0;
    error = ErrTimeout;
    queue = QueueSequencer;
    index = completed_i[0];
    // Who seems to hang.
    for (int k = 3; k > 0; k--) begin
      if (under_way_i[k]) begin
        queue = queue_e'(k);
        index = completed_i[k];
      end
    end
    state_d = state_q;
    stop_d  = stop_q;
    unique case (state_q)
      Idle:   if (start_i) state_d = Settle;
      Settle: if (bus_idle_i) state_d = Clear;
      Clear: begin
        state_d = quits_q ? Idle : Begin;
        ends    = quits_q;
      end
      Begin: begin
        state_d = Run;
        stop_d  = 1'b0;
      end
      Run: begin
        for (int k = 3; k >= 0; k--) begin
          if (fault_q[k].valid) begin
            fails = 1'b1;
            error = fault_q[k].code;
            queue = k == 0 ? fault_queue_q : queue_e'(k);
            index = fault_q[k].index;
          end
        end
        if (fails) begin
          state_d = Drain;
          stop_d  = 1'b1;
        end else if (finished_i && bus_idle_i) begin  // words behind HALT may still come
          state_d = Idle;
          ends    = 1'b1;
        end
      end
      Drain: if (bus_idle_i && exec_idle_i) begin
        state_d = Idle;
        ends    = 1'b1;
      end
      Quit: if (bus_idle_i) state_d = Clear;
      default: state_d = Idle;
    endcase
    if (quits) begin
      ends    = 1'b0;
      state_d = Quit;
      stop_d  = 1'b1;
      if (!fails && !failed_q) begin
        fails = 1'b1;
        error = abort_i ? ErrAborted : ErrLimit;
        queue = QueueSequencer;
        index = completed_i[0];
      end
    end
    if (silent && state_q != Idle && state_d == state_q) begin
      state_d = Idle;
      stop_d  = 1'b1;
      fails   = !failed_q;
      ends    = 1'b1;
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q     <= Idle;
      stop_q      <= 1'b1;
      unit_rst_nq <= 1'b0;
      done_q      <= 1'b0;
      failed_q    <= 1'b0;
      error_q     <= ErrNone;
      queue_q     <= QueueSequencer;
      index_q     <= '0;
      silence_q   <= '0;
      cycles_q    <= '0;
      quits_q     <= 1'b0;
    end else begin
      state_q     <= state_d;
      stop_q      <= stop_d;
      unit_rst_nq <= state_d != Clear;
      silence_q   <= (state_q == Quit ? moved_i : progress_i) || state_d != state_q ? '0 : silence_q + 32'd1;
      cycles_q    <= state_q == Idle ? '0 : cycles_q + 32'd1;
      quits_q     <= state_q == Idle ? 1'b0 : quits_q || state_d == Quit;
      if (state_q == Idle && start_i) begin
        done_q   <= 1'b0;
        failed_q <= 1'b0;
        error_q  <= ErrNone;
        queue_q  <= QueueSequencer;
        index_q  <= '0;
      end
      if (ends) done_q <= 1'b1;
      if (fails) begin
        failed_q <= 1'b1;
        error_q  <= error;
        queue_q  <= queue;
        index_q  <= index;
      end
    end
  end

  // A register between the units that find a fault and those that it stops.
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      fault_q       <= '0;
      fault_queue_q <= QueueSequencer;
    end else begin
      fault_q       <= fault_i;
      fault_queue_q <= fault_queue_i;
    end
  end

  assign unit_rst_no = unit_rst_nq;
  assign run_o       = state_q == Run;
  assign stop_o      = stop_q;
  assign outcome_o   = '{busy: state_q != Idle, done: done_q, failed: failed_q, error: error_q,
                         found_by: queue_q, index: index_q};

  // The reset is asynchronous here, and no condition.
  `LF_ASSERT(EndsAtRest, !ends || bus_idle_i || silent, "a run ends with memory at work", clk_i, 1'b0)
  `LF_ASSERT(GivenUpFails, !(ends && quits_q) || failed_q,
             "a run that was given up ends without an error", clk_i, 1'b0)
endmodule
