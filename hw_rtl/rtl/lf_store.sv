// Runs the queue of stores: reads words of Lanes bytes from the buffer, and packs their bytes into beats.
//
// Three stores may be in work at once: one is being prepared, one asks for its room in DRAM, one reads its words.
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
  localparam int unsigned FunnelBytes = Threshold + 2 * Lanes;  // one more word may be on the way, and rows are padded

  job_t               ready_job;
  logic               ready;
  logic               bad;
  logic               take;
  logic               asking_idle;
  logic               outside_dram;
  job_t               next_q;
  logic               next_valid_q;
  logic               start_words;

  logic               active;
  logic               outside_chip;
  logic [6:0]         lanes;
  logic [Lanes*8-1:0] mask;
  logic               row_end;
  logic               last;
  logic               step;
  space_e             unused_space;

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

  logic [31:0] taken_q;
  logic [31:0] finished_q;

  lf_job #(
    .Lanes(Lanes),
    .Store(1'b1)
  ) u_job (
    .clk_i,
    .rst_ni,
    .valid_i(head_valid_i),
    .transfer_i,
    .entry_i,
    .ready_o(ready),
    .bad_o  (bad),
    .job_o  (ready_job),
    .take_i (take)
  );

  assign take   = ready && may_start_i && asking_idle && !next_valid_q && !stop_i;
  assign take_o = take;

  lf_requests u_requests (
    .clk_i,
    .rst_ni,
    .start_i  (take),
    .job_i    (ready_job),
    .region_i,
    .idle_o   (asking_idle),
    .outside_o(outside_dram),
    .valid_o  (request_valid_o),
    .request_o,
    .ready_i  (request_ready_i)
  );

  assign start_words = next_valid_q && (!active || (step && last));

  lf_words #(
    .Lanes      (Lanes),
    .BufferWords(BufferWords)
  ) u_words (
    .clk_i,
    .rst_ni,
    .start_i  (start_words),
    .job_i    (next_q),
    .step_i   (step),
    .active_o (active),
    .word_o   (rd_word_o),
    .outside_o(outside_chip),
    .lanes_o  (lanes),
    .mask_o   (mask),
    .space_o  (unused_space),
    .row_end_o(row_end),
    .last_o   (last)
  );

  assign rd_valid_o   = active && !outside_chip && !stop_i && level_q < 8'(Threshold);
  assign step         = rd_valid_o && rd_grant_i;
  assign beat_valid_o = level_q >= 8'(BeatBytes);
  assign beat_o       = funnel_q[127:0];
  assign leave        = beat_valid_o && beat_ready_i;
  assign after_leave  = leave ? level_q - 8'(BeatBytes) : level_q;
  assign filled       = after_leave + 8'(lanes_q);

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      funnel_q <= '0;
      level_q  <= '0;
    end else if (leave || coming_q) begin
      // A row is padded to a beat.
      level_q  <= !coming_q ? after_leave : row_end_q ? (filled + 8'(BeatBytes - 1)) & ~8'(BeatBytes - 1) : filled;
      funnel_q <= (leave ? funnel_q >> (BeatBytes * 8) : funnel_q) |
                  (coming_q ? (FunnelBytes * 8)'(rd_data_i & mask_q) << {after_leave, 3'd0} : '0);
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      next_q       <= '0;
      next_valid_q <= 1'b0;
      coming_q     <= 1'b0;
      lanes_q      <= '0;
      mask_q       <= '0;
      row_end_q    <= 1'b0;
      taken_q      <= '0;
      finished_q   <= '0;
    end else begin
      coming_q <= step;
      if (step) begin
        lanes_q   <= lanes;
        mask_q    <= mask;
        row_end_q <= row_end;
      end
      if (done_i) finished_q <= finished_q + 32'd1;
      if (take) begin
        next_q       <= ready_job;
        next_valid_q <= 1'b1;
        taken_q      <= taken_q + 32'd1;
      end else if (start_words) begin
        next_valid_q <= 1'b0;
      end
    end
  end

  always_comb begin
    fault_o = '{valid: 1'b0, code: ErrNone, index: finished_q};
    if (bus_error_i) begin
      fault_o.valid = 1'b1;
      fault_o.code  = ErrBus;
    end else if (active && outside_chip) begin
      fault_o.valid = 1'b1;
      fault_o.code  = ErrBuffer;
    end else if (outside_dram) begin
      fault_o = '{valid: 1'b1, code: ErrRegion, index: taken_q - 32'd1};
    end else if (bad && may_start_i) begin
      fault_o = '{valid: 1'b1, code: ErrField, index: taken_q};
    end
  end
endmodule
