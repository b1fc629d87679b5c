// Starts and stops the core: clears its units, keeps the first error, and waits until the memory port is quiet.
module lf_control
  import lf_isa_pkg::*;
  import lf_dma_pkg::*;
(
  input  logic         clk_i,
  input  logic         rst_ni,
  input  logic         start_i,
  input  logic [31:0]  watchdog_i,      // cycles; 0: never
  // How the units do.
  input  fault_t [3:0] fault_i,         // of SEQUENCER, LOAD, STORE, EXEC
  input  queue_e       fault_queue_i,   // of the sequencer's
  input  logic         finished_i,      // HALT has been run, and all queues are empty
  input  logic         progress_i,      // anything moved
  input  logic         bus_idle_i,
  input  logic         exec_idle_i,     // no command is under way, or none ever will be again
  input  logic [3:1]   under_way_i,     // LOAD, STORE, EXEC have a command under way
  input  logic [3:0][31:0] completed_i, // commands (words) finished, as in fault_i
  // What they are told.
  output logic         unit_rst_no,     // clears every unit
  output logic         run_o,
  output logic         stop_o,          // start nothing more
  // Registers.
  output logic         busy_o,
  output logic         done_o,
  output logic         failed_o,
  output error_e       error_o,
  output queue_e       queue_o,
  output logic [31:0]  index_o
);
  typedef enum logic [2:0] {
    Idle,
    Settle,  // memory still owes something to a run that was given up
    Clear,
    Begin,
    Run,
    Drain    // an error: what is under way ends
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

  logic        silent;
  logic        fails;
  logic        ends;
  error_e      error;
  queue_e      queue;
  logic [31:0] index;

  assign silent = watchdog_i != '0 && silence_q >= watchdog_i;

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
      Clear:  state_d = Begin;
      Begin: begin
        state_d = Run;
        stop_d  = 1'b0;
      end
      Run: begin
        for (int k = 3; k >= 0; k--) begin
          if (fault_i[k].valid) begin
            fails = 1'b1;
            error = fault_i[k].code;
            queue = k == 0 ? fault_queue_i : queue_e'(k);
            index = fault_i[k].index;
          end
        end
        if (fails) begin
          state_d = Drain;
          stop_d  = 1'b1;
        end else if (finished_i) begin
          state_d = Idle;
          ends    = 1'b1;
        end
      end
      Drain: if (bus_idle_i && exec_idle_i) begin
        state_d = Idle;
        ends    = 1'b1;
      end
      default: state_d = Idle;
    endcase
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
    end else begin
      state_q     <= state_d;
      stop_q      <= stop_d;
      unit_rst_nq <= state_d != Clear;
      silence_q   <= progress_i || state_d != state_q ? '0 : silence_q + 32'd1;
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

  assign unit_rst_no = unit_rst_nq;
  assign run_o       = state_q == Run;
  assign stop_o      = stop_q;
  assign busy_o      = state_q != Idle;
  assign done_o      = done_q;
  assign failed_o    = failed_q;
  assign error_o     = error_q;
  assign queue_o     = queue_q;
  assign index_o     = index_q;
endmodule
