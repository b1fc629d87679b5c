// What holds of lf_queue whatever is pushed, started and finished.
//
// Assumed: heads start only when they may, and only what has started finishes (as lf_dma and lf_exec do);
// numbers of finished commands of the other queues only grow; targets lie near what is finished, as distances
// of 6 bits and queues of 8 entries make them. Of an entry's other fields, `row` stands for all.
module queue
  import lf_dma_pkg::*;
  import lf_port_pkg::*;
#(
  parameter int unsigned Depth = 2
) (
  input logic        clk_i,
  input logic        push_valid_i,
  input logic [1:0]  descriptor_i,
  input logic [2:0]  row_i,
  input logic [2:0]  wait_valid_i,
  input logic [2:0][2:0] distance_i,  // of the targets, from where the numbers of finished commands begin
  input logic        take_wish_i,
  input logic        done_wish_i,
  input logic [1:0]  others_i,  // a command of one of the other queues is finished
  input logic [1:0]  match_i,
  input logic [7:0]  followed_i  // number of a command
);
  logic             rst_nq = 1'b0;
  logic             push_ready, read, head_valid, may_start, empty, idle, match;
  logic [5:0]       read_descriptor;
  entry_t           head;
  logic [31:0]      completed;
  logic [2:0][15:0] completed_low;
  logic [15:0]      others_q [2] = '{16'hFFFD, 16'h7FFE};  // soon round
  entry_t           pushed;
  logic             take, done;

  head_t            head_port;
  queue_state_t     state;
  assign {head_valid, may_start, head} = head_port;
  assign {completed, empty, idle} = state;

  lf_queue #(
    .Depth(Depth)
  ) u_queue (
    .clk_i,
    .rst_ni           (rst_nq),
    .push_valid_i,
    .push_ready_o     (push_ready),
    .push_i           (pushed),
    .read_o           (read),
    .read_descriptor_o(read_descriptor),
    .head_o           (head_port),
    .take_i           (take),
    .done_i           (done),
    .completed_i      (completed_low),
    .state_o          (state),
    .match_i          (6'(match_i)),
    .match_o          (match)
  );

  always_comb begin
    pushed            = '0;
    pushed.descriptor = 6'(descriptor_i);
    pushed.row        = 16'(row_i);
    pushed.wait_valid = wait_valid_i;
    pushed.target     = {16'h7FFE + 16'(distance_i[2]), 16'hFFFD + 16'(distance_i[1]), 16'(distance_i[0])};
  end

  // The queue of loads, say; the other two are only numbers.
  assign completed_low = {others_q[1], others_q[0], completed[15:0]};

  // A model: commands that were pushed, have started, have finished.
  logic [7:0] pushed_q = '0, started_q = '0, finished_q = '0;
  assign take = take_wish_i && may_start;
  assign done = done_wish_i && started_q != finished_q;

  // One command, picked freely, is followed from its push to its start.
  logic [7:0] followed_number_q;
  entry_t     followed_q;
  logic       seen_q = 1'b0;

  always_ff @(posedge clk_i) begin
    rst_nq <= 1'b1;
    if (rst_nq) begin
      if (push_valid_i && push_ready) begin
        pushed_q <= pushed_q + 8'd1;
        if (pushed_q == followed_number_q) begin
          followed_q <= pushed;
          seen_q     <= 1'b1;
        end
      end
      if (take) started_q <= started_q + 8'd1;
      if (done) finished_q <= finished_q + 8'd1;
      for (int k = 0; k < 2; k++) if (others_i[k]) others_q[k] <= others_q[k] + 16'd1;
    end else begin
      followed_number_q <= followed_i;
    end
  end

  always_comb begin
    if (rst_nq) begin
      // Counters never run under or over.
      assert (8'(pushed_q - finished_q) <= 8'(Depth));
      assert (8'(pushed_q - started_q) <= 8'(Depth));
      assert (8'(started_q - finished_q) <= 8'(Depth));
      assert (completed[7:0] == finished_q);
      assert (push_ready == (8'(pushed_q - finished_q) != 8'(Depth)));
      assert (empty == (pushed_q == finished_q));
      assert (idle == (started_q == finished_q));
      // The head is there only if a command waits, and is the oldest that does.
      assert (!head_valid || pushed_q != started_q);
      if (head_valid && seen_q && started_q == followed_number_q) assert (head == followed_q);
      // What starts has nothing left to wait for: counted without wrapping, over all finished since reset.
      if (take && seen_q && started_q == followed_number_q) begin
        if (followed_q.wait_valid[0]) assert ($signed(completed[15:0] - followed_q.target[0]) >= 16'sd0);
        if (followed_q.wait_valid[1]) assert ($signed(others_q[0] - followed_q.target[1]) >= 16'sd0);
        if (followed_q.wait_valid[2]) assert ($signed(others_q[1] - followed_q.target[2]) >= 16'sd0);
      end
      // A command that waits or is under way is found by its descriptor.
      if (seen_q && 8'(followed_number_q - finished_q) < 8'(pushed_q - finished_q) &&
          followed_q.descriptor == 6'(match_i)) assert (match);
      if (empty) assert (!match);
    end
  end

  // All of this happens.
  always_comb begin
    cover (rst_nq && finished_q == 8'd2 && followed_number_q == 8'd2 && take && started_q == 8'd2 &&
           followed_q.wait_valid == '1);
  end

  logic unused;
  assign unused = ^{read, read_descriptor};
endmodule
