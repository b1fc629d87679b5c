// Runs the queue of stores: lf_transfer asks for room in DRAM; words of Lanes bytes are read from the buffer,
// and their bytes packed into beats.
`include "lf_assert.svh"

module lf_store
  import lf_isa_pkg::*;
  import lf_dma_pkg::*;
#(
  parameter int unsigned Lanes = 16,
  parameter int unsigned BufferWords = 16384
) (
  input  logic               clk_i,
  input  logic               rst_ni,
  input  logic               stop_i,       // ask for nothing more, read nothing more
  input  region_t            region_i,
  // Head of the queue. may_start_i: its waits are over. It stays until take_o.
  input  logic               head_valid_i,
  input  logic               may_start_i,
  input  transfer_t          transfer_i,
  input  entry_t             entry_i,
  output logic               take_o,
  input  logic               done_i,       // pulse: memory has taken the last beat of the oldest store
  input  logic               bus_error_i,  // memory answered with an error
  output fault_t             fault_o,      // level
  // Requests. Accepted when valid and ready.
  output logic               request_valid_o,
  output request_t           request_o,
  input  logic               request_ready_i,
  // Beats, in the order of the requests. Accepted when valid and ready.
  output logic               beat_valid_o,
  input  logic               beat_ready_i,
  output logic [127:0]       beat_o,
  // Read port of the buffer: data the cycle after the grant.
  output logic               rd_valid_o,
  output logic [19:0]        rd_word_o,
  input  logic               rd_grant_i,
  input  logic [Lanes*8-1:0] rd_data_i
);
  localparam int unsigned Threshold = Lanes + BeatBytes;  // a word is read while the funnel holds less
  localparam int unsigned FunnelBytes = Threshold + 2 * Lanes;  // a word may be on the way; rows are padded

  // The word that is read.
  logic               valid;
  logic [6:0]         lanes;
  logic [Lanes*8-1:0] mask;
  logic               row_end;
  logic               step;
  logic               unused_start;
  rows_t              unused_rows;
  space_e             unused_space;
  logic               unused_last;

  // The word that arrives in this cycle.
  logic               coming_q;
  logic [6:0]         lanes_q;
  logic [Lanes*8-1:0] mask_q;
  logic               row_end_q;

  // The funnel: bytes in the order of DRAM, the oldest lowest, zeros above level_q.
  logic [FunnelBytes*8-1:0] funnel_q;
  logic [7:0]               level_q;
  logic                     leave;
  logic [7:0]               after_leave;
  logic [7:0]               filled;

  lf_transfer #(
    .Lanes      (Lanes),
    .BufferWords(BufferWords),
    .Store      (1'b1)
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
    .done_i,
    .bus_error_i,
    .fault_o,
    .request_valid_o,
    .request_o,
    .request_ready_i,
    .start_o    (unused_start),
    .rows_o     (unused_rows),
    .valid_o    (valid),
    .word_o     (rd_word_o),
    .lanes_o    (lanes),
    .mask_o     (mask),
    .space_o    (unused_space),
    .row_end_o  (row_end),
    .last_o     (unused_last),
    .step_i     (step)
  );

  assign rd_valid_o   = valid && level_q < 8'(Threshold);
  assign step         = rd_valid_o && rd_grant_i;
  assign beat_valid_o = level_q >= 8'(BeatBytes);
  assign beat_o       = funnel_q[127:0];
  assign leave        = beat_valid_o && beat_ready_i;
  assign after_leave  = leave ? level_q - 8'(BeatBytes) : level_q;
  assign filled       = after_leave + 8'(lanes_q);

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      funnel_q <= '0;
      level_q  <= '0;
    end else if (leave || coming_q) begin
      // A row is padded to a beat.
      level_q  <= !coming_q ? after_leave :
                  row_end_q ? (filled + 8'(BeatBytes - 1)) & ~8'(BeatBytes - 1) : filled;
      funnel_q <= (leave ? funnel_q >> (BeatBytes * 8) : funnel_q) |
                  (coming_q ? (FunnelBytes * 8)'(rd_data_i & mask_q) << {after_leave, 3'd0} : '0);
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      coming_q  <= 1'b0;
      lanes_q   <= '0;
      mask_q    <= '0;
      row_end_q <= 1'b0;
    end else begin
      coming_q <= step;
      if (step) begin
        lanes_q   <= lanes;
        mask_q    <= mask;
        row_end_q <= row_end;
      end
    end
  end

  `LF_ASSERT(FunnelHasRoom, !coming_q || 32'(filled) <= FunnelBytes,
             "a word comes for which there is no room")
  `LF_HELD(BeatHeld, beat_valid_o, beat_ready_i, beat_o)
endmodule
