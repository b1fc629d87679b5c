// What holds at the memory port of lf_dma, whatever loads, stores and the program ask for, and whenever it is
// told to stop: the rules of AXI.
//
// lf_load and lf_store are stood in for by modules that ask for anything that lf_requests may (see
// requests.sv): the rest of them does not matter here. Assumed of memory: it answers only what it was asked,
// in order; stop stays.
module lf_load
  import lf_isa_pkg::*;
  import lf_dma_pkg::*;
#(
  parameter int unsigned Lanes = 16,
  parameter int unsigned BufferWords = 16384
) (
  input  logic               clk_i,
  input  logic               rst_ni,
  input  logic               stop_i,
  input  region_t            region_i,
  input  logic               head_valid_i,
  input  logic               may_start_i,
  input  transfer_t          transfer_i,
  input  entry_t             entry_i,
  output logic               take_o,
  output logic               done_o,
  output fault_t             fault_o,
  output logic               request_valid_o,
  output request_t           request_o,
  input  logic               request_ready_i,
  input  logic               beat_valid_i,
  output logic               beat_ready_o,
  input  logic [127:0]       beat_i,
  input  logic               beat_err_i,
  output logic               wr_valid_o,
  output logic [19:0]        wr_word_o,
  output logic [Lanes*8-1:0] wr_data_o,
  input  logic               wr_grant_i,
  output logic               aux_valid_o,
  output space_e             aux_space_o,
  output logic [19:0]        aux_word_o,
  output logic [Lanes*8-1:0] aux_data_o
);
  // Nothing drives the outputs: they are free.
  logic free_ready;
  assign beat_ready_o = stop_i || free_ready;
  always_comb assume (request_o.beats != '0 && 8'(request_o.beat[5:0]) + 8'(request_o.beats) <= 8'd64);
endmodule

module lf_store
  import lf_isa_pkg::*;
  import lf_dma_pkg::*;
#(
  parameter int unsigned Lanes = 16,
  parameter int unsigned BufferWords = 16384
) (
  input  logic               clk_i,
  input  logic               rst_ni,
  input  logic               stop_i,
  input  region_t            region_i,
  input  logic               head_valid_i,
  input  logic               may_start_i,
  input  transfer_t          transfer_i,
  input  entry_t             entry_i,
  output logic               take_o,
  input  logic               done_i,
  input  logic               bus_error_i,
  output fault_t             fault_o,
  output logic               request_valid_o,
  output request_t           request_o,
  input  logic               request_ready_i,
  output logic               beat_valid_o,
  input  logic               beat_ready_i,
  output logic [127:0]       beat_o,
  output logic               rd_valid_o,
  output logic [19:0]        rd_word_o,
  input  logic               rd_grant_i,
  input  logic [Lanes*8-1:0] rd_data_i
);
  always_comb assume (request_o.beats != '0 && 8'(request_o.beat[5:0]) + 8'(request_o.beats) <= 8'd64);
endmodule

module dma
  import lf_isa_pkg::*;
  import lf_dma_pkg::*;
  import lf_port_pkg::*;
(
  input logic         clk_i,
  input logic         stop_wish_i,
  input logic         fetch_valid_i,
  input request_t     fetch_i,
  input logic         ar_ready_i,
  input logic         r_wish_i,
  input logic         r_err_i,
  input logic [127:0] r_data_i,
  input logic         aw_ready_i,
  input logic         w_ready_i,
  input logic         b_wish_i,
  input logic         b_err_i,
  input logic [3:0]   followed_i  // number of a burst
);
  logic         rst_nq = 1'b0;
  logic         stop_q = 1'b0;
  logic         idle, ar_valid, r_valid, r_ready, aw_valid, w_valid, w_last, b_valid;
  logic [31:0]  ar_addr, aw_addr;
  logic [7:0]   ar_beats, aw_beats;
  logic [127:0] w_data;
  logic [15:0]  w_strb;

  burst_t       ar, aw;
  write_beat_t  w;

  assign {ar_valid, ar_addr, ar_beats} = ar;
  assign {aw_valid, aw_addr, aw_beats} = aw;
  assign {w_valid, w_data, w_strb, w_last} = w;

  lf_dma u_dma (
    .clk_i,
    .rst_ni          (rst_nq),
    .stop_i          (stop_q),
    .read_region_i   ('0),
    .write_region_i  ('0),
    .idle_o          (idle),
    .head_i          ('0),
    .transfer_i      ('0),
    .take_o          (),
    .done_o          (),
    .fault_o         (),
    .fetch_valid_i,
    .fetch_i,
    .fetch_ready_o   (),
    .fetch_beat_o    (),
    .wr_o            (),
    .wr_data_o       (),
    .wr_grant_i      ('0),
    .rd_o            (),
    .rd_grant_i      ('0),
    .rd_data_i       ('0),
    .aux_o           (),
    .aux_data_o      (),
    .events_o        (),
    .rd_burst_o      (ar),
    .rd_burst_ready_i(ar_ready_i),
    .rd_beat_i       ('{valid: r_valid, data: r_data_i, err: r_err_i}),
    .rd_beat_ready_o (r_ready),
    .wr_burst_o      (aw),
    .wr_burst_ready_i(aw_ready_i),
    .wr_beat_o       (w),
    .wr_beat_ready_i (w_ready_i),
    .wr_response_i   ('{valid: b_valid, err: b_err_i})
  );

  // A model of what memory has seen. Bursts are counted; of one, picked freely, the beats are followed.
  logic [11:0] r_owed_q = '0;  // beats of reads that were asked for
  // Bursts: accepted; offered; ended; answered.
  logic [3:0]  ar_q = '0, aw_offered_q = '0, aw_q = '0, w_q = '0, b_q = '0;
  logic [6:0]  w_beats_q = '0;  // of the burst at work
  logic [3:0]  followed_q;
  logic [7:0]  length_q;
  logic        seen_q = 1'b0;
  logic        aw_new;  // offered for the first time
  // As they were in the cycle before.
  logic         past_q = 1'b0, stop_before_q, ar_held_q, aw_held_q, w_held_q;
  logic [39:0]  ar_before_q, aw_before_q;
  logic [144:0] w_before_q;

  assign aw_new  = aw_valid && !aw_held_q;
  assign r_valid = r_wish_i && r_owed_q != '0;
  assign b_valid = b_wish_i && b_q != aw_q && b_q != w_q;

  always_ff @(posedge clk_i) begin
    rst_nq <= 1'b1;
    past_q <= rst_nq;
    if (!rst_nq) followed_q <= followed_i;
    stop_q        <= rst_nq && (stop_q || stop_wish_i);
    stop_before_q <= stop_q;
    ar_held_q     <= rst_nq && ar_valid && !ar_ready_i;
    aw_held_q     <= rst_nq && aw_valid && !aw_ready_i;
    w_held_q      <= rst_nq && w_valid && !w_ready_i;
    ar_before_q   <= {ar_addr, ar_beats};
    aw_before_q   <= {aw_addr, aw_beats};
    w_before_q    <= {w_data, w_strb, w_last};
    if (rst_nq) begin
      r_owed_q <= r_owed_q + (ar_valid && ar_ready_i ? 12'(ar_beats) : 12'd0) - 12'(r_valid && r_ready);
      if (aw_new) aw_offered_q <= aw_offered_q + 4'd1;
      if (aw_new && aw_offered_q == followed_q) begin
        length_q <= aw_beats;
        seen_q   <= 1'b1;
      end
      if (aw_valid && aw_ready_i) aw_q <= aw_q + 4'd1;
      if (w_valid && w_ready_i) begin
        w_beats_q <= w_last ? '0 : w_beats_q + 7'd1;
        if (w_last) w_q <= w_q + 4'd1;
      end
      if (b_valid) b_q <= b_q + 4'd1;
    end
  end

  always_comb begin
    assume (fetch_i.beats != '0 && 8'(fetch_i.beat[5:0]) + 8'(fetch_i.beats) <= 8'd64);
    if (rst_nq) begin
      // What is offered stays as it is until it is accepted.
      if (ar_held_q) assert (ar_valid && {ar_addr, ar_beats} == ar_before_q);
      if (aw_held_q) assert (aw_valid && {aw_addr, aw_beats} == aw_before_q);
      if (w_held_q) assert (w_valid && {w_data, w_strb, w_last} == w_before_q);
      // No burst crosses 4 KiB.
      if (ar_valid)
        assert (ar_beats != '0 && ar_addr[3:0] == '0 && 9'(ar_addr[11:4]) + 9'(ar_beats) <= 9'd256);
      if (aw_valid)
        assert (aw_beats != '0 && aw_addr[3:0] == '0 && 9'(aw_addr[11:4]) + 9'(aw_beats) <= 9'd256);
      // No more writes under way than said, and idle only without any; no beats before their burst is
      // offered; the last beat is the last.
      assert (4'(aw_offered_q - b_q) + 4'(aw_new) <= 4'(Outstanding));
      if (idle) assert (!aw_valid && !w_valid && !ar_valid && aw_offered_q == b_q && r_owed_q == '0);
      if (w_valid) assert (w_q != aw_offered_q);
      if (w_valid && seen_q && w_q == followed_q) assert (w_last == (8'(w_beats_q) + 8'd1 == length_q));
      // Told to stop: no new burst is offered, reads are always taken, beats of writes come without strobes.
      if (past_q && stop_before_q && !ar_held_q) assert (!ar_valid);
      if (past_q && stop_before_q && !aw_held_q) assert (!aw_valid);
      if (stop_q && r_valid) assert (r_ready);
      if (past_q && stop_before_q && w_valid && !w_held_q) assert (w_strb == '0);
      if (past_q && stop_before_q && w_q != aw_offered_q) assert (w_valid);
    end
  end

  always_comb begin
    cover (rst_nq && b_q == 4'd2 && seen_q && length_q == 8'd2 && followed_q == 4'd1 && r_owed_q == 12'd5 &&
           stop_q);
  end

  logic unused;
  assign unused = ^ar_q;
endmodule
