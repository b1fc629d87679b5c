// When commands run, for simulation: a line `queue start end` for each that is finished, in the file that
// +commands names. Queues as in queue_e; cycles of the run: the command is under way from `start` on, and
// before `end`. Bound to lf_core, which knows nothing of it.
module lf_trace #(
  parameter int unsigned Depth = 8  // of a queue, as lf_queue has it
) (
  input logic       clk_i,
  input logic       busy_i,
  input logic [2:0] take_i,  // the head of LOAD, STORE, EXEC starts
  input logic [2:0] done_i   // the oldest that has started is finished
);
  int               file;
  longint unsigned  cycle_q;
  longint unsigned  starts_q [3][Depth];
  int unsigned      started_q [3];
  int unsigned      ended_q [3];

  initial begin
    string name;
    file = 0;
    if ($value$plusargs("commands=%s", name)) begin
      file = $fopen(name, "w");
      if (file == 0) $fatal(1, "cannot write %s", name);
    end
  end

  always_ff @(posedge clk_i) begin
    if (!busy_i) begin
      cycle_q <= 0;
      for (int k = 0; k < 3; k++) begin
        started_q[k] <= 0;
        ended_q[k]   <= 0;
      end
    end else if (file != 0) begin
      cycle_q <= cycle_q + 1;
      for (int k = 0; k < 3; k++) begin
        if (take_i[k]) begin
          starts_q[k][started_q[k] % Depth] <= cycle_q + 1;
          started_q[k] <= started_q[k] + 1;
        end
        if (done_i[k]) begin
          $fwrite(file, "%0d %0d %0d\n", k + 1, starts_q[k][ended_q[k] % Depth], cycle_q + 1);
          ended_q[k] <= ended_q[k] + 1;
        end
      end
    end
  end

  final if (file != 0) $fclose(file);
endmodule

bind lf_core lf_trace u_trace (
  .clk_i,
  .busy_i(outcome.busy),
  .take_i(take),
  .done_i(done)
);
