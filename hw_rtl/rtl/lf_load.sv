// Runs the queue of loads: asks for the beats, takes them apart into words of Lanes bytes, and writes those to their space on chip.
//
// Three loads may be in work at once: one is being prepared, one asks for its beats, one writes its words.
module lf_load
  import lf_isa_pkg::*;
  import lf_dma_pkg::*;
#(
  parameter int unsigned Lanes = 16,
  parameter int unsigned BufferWords = 16384
) (
  input  logic               clk_i,
  input  logic               rst_ni,
  input  logic               stop_i,       // ask for nothing more, write nothing more, throw away what arrives
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

  // Jobs: ready -> asking, next -> writing.
  job_t ready_job;
  logic ready;
  logic bad;
  logic take;
  logic asking_idle;
  logic outside_dram;
  job_t next_q;
  logic next_valid_q;
  logic start_words;

  // Words of the job that is written.
  logic               active;
  logic               outside_chip;
  logic [6:0]         lanes;
  logic [Lanes*8-1:0] mask;
  logic [19:0]        word;
  space_e             space;
  logic               last;
  logic               step;
  logic               unused_row_end;

  // Beats of the job that is written.
  logic [33:0] line_beats_q;   // of a row
  logic [33:0] beats_left_q;   // of this row
  logic [11:0] rows_left_q;    // this one too; 0: everything has arrived
  logic [4:0]  rest_bytes_q;
  logic        accept;
  logic [4:0]  beat_bytes;

  // The funnel: bytes in the order of DRAM, the oldest lowest, zeros above level_q.
  logic [FunnelBytes*8-1:0] funnel_q;
  logic [6:0]               level_q;
  logic [6:0]               after_step;
  logic                     full_word;

  logic        done_q;
  logic [31:0] taken_q;
  logic [31:0] finished_q;
  logic        bus_error;

  lf_job #(
    .Lanes(Lanes),
    .Store(1'b0)
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
    .word_o   (word),
    .outside_o(outside_chip),
    .lanes_o  (lanes),
    .mask_o   (mask),
    .space_o  (space),
    .row_end_o(unused_row_end),
    .last_o   (last)
  );

  // Out of the funnel.
  assign full_word   = active && level_q >= lanes && !outside_chip && !stop_i;
  assign wr_valid_o  = full_word && space == SpaceBuffer;
  assign wr_word_o   = word;
  assign wr_data_o   = funnel_q[Lanes*8-1:0] & mask;
  assign aux_valid_o = full_word && space != SpaceBuffer;
  assign aux_space_o = space;
  assign aux_word_o  = word;
  assign aux_data_o  = funnel_q[Lanes*8-1:0] & mask;
  assign step        = aux_valid_o || (wr_valid_o && wr_grant_i);

  // Into the funnel.
  assign beat_ready_o = stop_i || (rows_left_q != '0 && level_q <= 7'(FunnelBytes - BeatBytes));
  assign accept       = beat_valid_i && beat_ready_o && !stop_i;
  assign beat_bytes   = beats_left_q == 34'd1 ? rest_bytes_q : 5'd16;
  assign after_step   = step ? level_q - lanes : level_q;
  assign bus_error    = accept && beat_err_i;

  // The bytes of a beat that are not padding.
  function automatic logic [127:0] kept(logic [127:0] beat, logic [4:0] bytes);
    logic [127:0] found;
    for (int unsigned k = 0; k < BeatBytes; k++) found[k*8+:8] = 5'(k) < bytes ? beat[k*8+:8] : 8'd0;
    return found;
  endfunction

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      funnel_q <= '0;
      level_q  <= '0;
    end else if (step || accept) begin
      level_q  <= accept ? after_step + 7'(beat_bytes) : after_step;
      funnel_q <= (step ? funnel_q >> {lanes, 3'd0} : funnel_q) |
                  (accept ? (FunnelBytes * 8)'(kept(beat_i, beat_bytes)) << {after_step, 3'd0} : '0);
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      next_q       <= '0;
      next_valid_q <= 1'b0;
      line_beats_q <= '0;
      beats_left_q <= '0;
      rows_left_q  <= '0;
      rest_bytes_q <= '0;
      done_q       <= 1'b0;
      taken_q      <= '0;
      finished_q   <= '0;
    end else begin
      done_q <= step && last;
      if (step && last) finished_q <= finished_q + 32'd1;
      if (take) begin
        next_q       <= ready_job;
        next_valid_q <= 1'b1;
        taken_q      <= taken_q + 32'd1;
      end else if (start_words) begin
        next_valid_q <= 1'b0;
      end
      if (start_words) begin
        line_beats_q <= next_q.line_beats;
        beats_left_q <= next_q.line_beats;
        rows_left_q  <= next_q.rows;
        rest_bytes_q <= next_q.rest_bytes;
      end else if (accept) begin
        beats_left_q <= beats_left_q - 34'd1;
        if (beats_left_q == 34'd1) begin
          beats_left_q <= line_beats_q;
          rows_left_q  <= rows_left_q - 12'd1;
        end
      end
    end
  end

  assign done_o = done_q;

  always_comb begin
    fault_o = '{valid: 1'b0, code: ErrNone, index: finished_q};
    if (bus_error) begin
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
