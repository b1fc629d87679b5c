// Runs the queue of loads: lf_transfer asks for the beats; they are taken apart into words of Lanes bytes,
// which go to their space on chip.
`include "lf_assert.svh"

module lf_load
  import lf_isa_pkg::*;
  import lf_dma_pkg::*;
#(
  parameter int unsigned Lanes = 16,
  parameter int unsigned BufferWords = 16384
) (
  input  logic               clk_i,
  input  logic               rst_ni,
  input  logic               stop_i,       // ask for and write nothing more, throw away what arrives
  input  region_t            region_i,
  // Head of the queue. may_start_i: its waits are over. It stays until take_o.
  input  logic               head_valid_i,
  input  logic               may_start_i,
  input  transfer_t          transfer_i,
  input  entry_t             entry_i,
  output logic               take_o,
  output logic               done_o,       // pulse: the oldest load not yet done is finished
  output fault_t             fault_o,      // level
  // Requests. Accepted when valid and ready.
  output logic               request_valid_o,
  output request_t           request_o,
  input  logic               request_ready_i,
  // Beats, in order.
  input  logic               beat_valid_i,
  output logic               beat_ready_o,
  input  logic [127:0]       beat_i,
  input  logic               beat_err_i,
  // Write port of the buffer.
  output logic               wr_valid_o,
  output logic [19:0]        wr_word_o,
  output logic [Lanes*8-1:0] wr_data_o,
  input  logic               wr_grant_i,
  // Factors and tables.
  output logic               aux_valid_o,
  output space_e             aux_space_o,
  output logic [19:0]        aux_word_o,
  output logic [Lanes*8-1:0] aux_data_o
);
  localparam int unsigned FunnelBytes = Lanes + 2 * BeatBytes;

  // Words.
  logic               start;
  rows_t              rows;
  logic               valid;
  logic [6:0]         lanes;
  logic [Lanes*8-1:0] mask;
  logic [19:0]        word;
  space_e             space;
  logic               last;
  logic               step;
  logic               done;
  logic               done_q;
  logic               unused_row_end;

  // Beats of the load whose words are written.
  rows_t       rows_q;        // still to come, the one that comes now too; 0: everything has arrived
  logic [33:0] beats_left_q;  // of the row that comes now
  logic        row_end;       // one is left
  logic        accept;
  logic [4:0]  beat_bytes;

  // The funnel: bytes in the order of DRAM, the oldest lowest, zeros above level_q.
  logic [FunnelBytes*8-1:0] funnel_q;
  logic [6:0]               level_q;
  logic [6:0]               after_step;
  logic                     full_word;

  lf_transfer #(
    .Lanes      (Lanes),
    .BufferWords(BufferWords),
    .Store      (1'b0)
  ) u_transfer (
    .clk_i,
    .rst_ni,
    .stop_i,
    .region_i,
    .head_valid_i,
    .may_start_i,
    .transfer_i,
    .entry_i,
    .take_o,
    .done_i     (done),
    .bus_error_i(accept && beat_err_i),
    .fault_o,
    .request_valid_o,
    .request_o,
    .request_ready_i,
    .start_o    (start),
    .rows_o     (rows),
    .valid_o    (valid),
    .word_o     (word),
    .lanes_o    (lanes),
    .mask_o     (mask),
    .space_o    (space),
    .row_end_o  (unused_row_end),
    .last_o     (last),
    .step_i     (step)
  );

  // Out of the funnel.
  assign full_word   = valid && level_q >= lanes;
  assign wr_valid_o  = full_word && space == SpaceBuffer;
  assign wr_word_o   = word;
  assign wr_data_o   = funnel_q[Lanes*8-1:0] & mask;
  assign aux_valid_o = full_word && space != SpaceBuffer;
  assign aux_space_o = space;
  assign aux_word_o  = word;
  assign aux_data_o  = funnel_q[Lanes*8-1:0] & mask;
  assign step        = aux_valid_o || (wr_valid_o && wr_grant_i);
  assign done        = step && last;

  // Into the funnel.
  assign beat_ready_o = stop_i || (rows_q.rows != '0 && level_q <= 7'(FunnelBytes - BeatBytes));
  assign accept       = beat_valid_i && beat_ready_o && !stop_i;
  assign row_end      = beats_left_q == 34'd1;
  assign beat_bytes   = row_end ? rows_q.rest_bytes : 5'd16;
  assign after_step   = step ? level_q - lanes : level_q;

  // The bytes of a beat that are not padding.
  function automatic logic [127:0] kept(logic [127:0] beat, logic [4:0] bytes);
    logic [127:0] found;
    for (int unsigned k = 0; k < BeatBytes; k++) found[k*8+:8] = 5'(k) < bytes ? beat[k*8+:8] : 8'd0;
    return found;
  endfunction

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      funnel_q <= '0;
      level_q  <= '0;
    end else if (step || accept) begin
      level_q  <= accept ? after_step + 7'(beat_bytes) : after_step;
      funnel_q <= (step ? funnel_q >> {lanes, 3'd0} : funnel_q) |
                  (accept ? (FunnelBytes * 8)'(kept(beat_i, beat_bytes)) << {after_step, 3'd0} : '0);
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      rows_q       <= '0;
      beats_left_q <= '0;
      done_q       <= 1'b0;
    end else begin
      done_q <= done;
      if (start) begin
        rows_q       <= rows;
        beats_left_q <= rows.line_beats;
      end else if (accept) begin
        beats_left_q <= row_end ? rows_q.line_beats : beats_left_q - 34'd1;
        if (row_end) rows_q.rows <= rows_q.rows - 12'd1;
      end
    end
  end

  assign done_o = done_q;

  `LF_ASSERT(FunnelHasRoom, !accept || after_step + 7'(beat_bytes) <= 7'(FunnelBytes),
             "a beat comes for which there is no room")
  `LF_ASSERT(FunnelHasWord, !step || level_q >= lanes, "a word goes whose bytes are not there")
endmodule
