// A queue of commands. An entry stays until its command is finished; the head is the oldest not yet started.
`include "lf_assert.svh"

module lf_queue
  import lf_dma_pkg::*;
  import lf_port_pkg::*;
#(
  parameter int unsigned Depth = 8  // entries, a power of 2
) (
  input  logic             clk_i,
  input  logic             rst_ni,
  // From the sequencer. Accepted when valid and ready.
  input  logic             push_valid_i,
  output logic             push_ready_o,
  input  entry_t           push_i,
  // Descriptor table: data the cycle after read_o, held until the next read.
  output logic             read_o,
  output logic [5:0]       read_descriptor_o,
  // The head. take_i: it starts.
  output head_t            head_o,
  input  logic             take_i,
  // The oldest that has started is finished.
  input  logic             done_i,
  input  logic [2:0][15:0] completed_i,  // commands of LOAD, STORE, EXEC that are finished, modulo 2**16
  output queue_state_t     state_o,
  // Whether a command that names this descriptor waits or is under way.
  input  logic [5:0]       match_i,
  output logic             match_o
);
  localparam int unsigned PointerWidth = $clog2(Depth);

  if (Depth < 2 || Depth != 1 << PointerWidth) begin : gen_bad_depth
    $error("lf_queue: found Depth = %0d; accepted: powers of 2, from 2 on", Depth);
  end

  entry_t                  entries_q [Depth];
  logic [5:0]              descriptors_q [Depth];  // those of the entries
  logic [Depth-1:0]        used_q;
  logic [PointerWidth-1:0] new_q;
  logic [PointerWidth-1:0] head_q;
  logic [PointerWidth-1:0] old_q;
  logic [PointerWidth:0]   waiting_q;    // entries that have not started
  logic [PointerWidth:0]   under_way_q;  // entries that have started
  logic                    loaded_q;     // the head and its descriptor have been read
  entry_t                  head_entry_q;
  logic [31:0]             completed_q;

  logic                    push;
  logic [PointerWidth-1:0] next;         // the head, after take_i
  logic [2:0]              reached;

  assign push_ready_o = waiting_q + under_way_q != (PointerWidth + 1)'(Depth);
  assign push         = push_valid_i && push_ready_o;
  assign next         = take_i ? head_q + PointerWidth'(1) : head_q;

  assign read_o            = (take_i || !loaded_q) && waiting_q != (PointerWidth + 1)'(take_i);
  assign read_descriptor_o = descriptors_q[next];

  assign head_o  = '{valid: loaded_q, may_start: loaded_q && reached == '1, entry: head_entry_q};
  assign state_o = '{completed: completed_q, empty: waiting_q == '0 && under_way_q == '0,
                     idle: under_way_q == '0};

  always_comb begin
    for (int unsigned queue = 0; queue < 3; queue++) begin
      // Numbers wrap: the difference counts.
      reached[queue] = !head_entry_q.wait_valid[queue] ||
                       $signed(completed_i[queue] - head_entry_q.target[queue]) >= 16'sd0;
    end
  end

  always_comb begin
    match_o = 1'b0;
    for (int unsigned k = 0; k < Depth; k++) match_o |= used_q[k] && descriptors_q[k] == match_i;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      for (int unsigned k = 0; k < Depth; k++) begin
        entries_q[k]     <= '0;
        descriptors_q[k] <= '0;
      end
      head_entry_q <= '0;
      used_q      <= '0;
      new_q       <= '0;
      head_q      <= '0;
      old_q       <= '0;
      waiting_q   <= '0;
      under_way_q <= '0;
      loaded_q    <= 1'b0;
      completed_q <= '0;
    end else begin
      loaded_q <= read_o || (loaded_q && !take_i);
      head_q   <= next;
      if (read_o) head_entry_q <= entries_q[next];
      if (push) begin
        entries_q[new_q]     <= push_i;
        descriptors_q[new_q] <= push_i.descriptor;
        used_q[new_q]        <= 1'b1;
        new_q                <= new_q + PointerWidth'(1);
      end
      if (done_i) begin
        used_q[old_q] <= 1'b0;
        old_q         <= old_q + PointerWidth'(1);
        completed_q   <= completed_q + 32'd1;
      end
      waiting_q   <= waiting_q + (PointerWidth + 1)'(push) - (PointerWidth + 1)'(take_i);
      under_way_q <= under_way_q + (PointerWidth + 1)'(take_i) - (PointerWidth + 1)'(done_i);
    end
  end

  `LF_ASSERT(PushedWhereFree, !push || !used_q[new_q], "an entry is overwritten")
  `LF_ASSERT(TakenOnceThere, !take_i || loaded_q, "a head starts before its descriptor has been read")
  `LF_ASSERT(DoneOnceTaken, !done_i || under_way_q != '0, "a command is finished that has not started")
  `LF_HELD(HeadHeld, head_o.valid, take_i, head_o.entry)
  `LF_ASSERT(MayStartHeld, head_o.may_start && !take_i |=> head_o.may_start,
             "a head that may start may not any more")
endmodule
