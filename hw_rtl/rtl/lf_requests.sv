// Cuts a transfer into requests: stretches of DRAM that follow one another are asked for as one, in pieces of up to MaxBeats.
module lf_requests
  import lf_dma_pkg::*;
(
  input  logic     clk_i,
  input  logic     rst_ni,
  input  logic     start_i,    // take job_i; only while idle_o
  input  job_t     job_i,
  input  region_t  region_i,
  output logic     idle_o,     // every request of the job has been handed over
  output logic     outside_o,  // level: the next request would leave the region; it is not made
  // Requests. Accepted when valid and ready.
  output logic     valid_o,
  output request_t request_o,
  input  logic     ready_i
);
  job_t                   job_q;
  logic                   active_q;
  logic [BeatWidth-1:0]   beat_q;    // of the next request
  logic [BeatWidth-1:0]   block_q;   // first beat of the block
  logic [BeatWidth-1:0]   row_q;     // first beat of the row
  logic [LengthWidth-1:0] left_q;    // beats of the stretch
  logic [9:0]             blocks_q;  // stretches of the row still to be asked for, this one too
  logic [11:0]            rows_q;    // rows still to be asked for, this one too

  logic [6:0]           room;  // beats up to the next multiple of MaxBeats
  logic [6:0]           beats;
  logic                 ends;  // this request ends its stretch
  logic [BeatWidth-1:0] limit;
  logic                 step;
  logic [BeatWidth-1:0] next_block;
  logic [BeatWidth-1:0] next_row;
  logic                 unused;

  assign room       = 7'(MaxBeats) - {1'b0, beat_q[5:0]};
  assign ends       = left_q <= LengthWidth'(room);
  assign beats      = ends ? left_q[6:0] : room;
  assign limit      = beat_q + BeatWidth'(beats);
  assign outside_o  = active_q && (beat_q < BeatWidth'(region_i.first) || limit > BeatWidth'(region_i.limit));
  assign valid_o    = active_q && !outside_o;
  assign step       = valid_o && ready_i;
  assign idle_o     = !active_q;
  assign next_block = block_q + BeatWidth'(job_q.block_beats);
  assign next_row   = row_q + BeatWidth'(job_q.row_beats);
  assign request_o  = '{
    beat:   beat_q[27:0],
    beats:  beats,
    class_: job_q.class_,
    last:   ends && blocks_q == 10'd1 && rows_q == 12'd1
  };
  // Of the job, this unit needs only where it lies in DRAM.
  assign unused = ^{job_q.space, job_q.columns, job_q.tail, job_q.rest_bytes, job_q.slots, job_q.slot, job_q.base, job_q.place, job_q.slot_words,
                    job_q.block_words, job_q.beat, job_q.rows, job_q.first_beats, job_q.merge_rows};

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      job_q    <= '0;
      active_q <= 1'b0;
      beat_q   <= '0;
      block_q  <= '0;
      row_q    <= '0;
      left_q   <= '0;
      blocks_q <= '0;
      rows_q   <= '0;
    end else if (start_i) begin
      job_q    <= job_i;
      active_q <= 1'b1;
      beat_q   <= job_i.beat;
      block_q  <= job_i.beat;
      row_q    <= job_i.beat;
      left_q   <= job_i.first_beats;
      blocks_q <= job_i.merge_blocks ? 10'd1 : job_i.blocks;
      rows_q   <= job_i.merge_rows ? 12'd1 : job_i.rows;
    end else if (step) begin
      beat_q <= limit;
      left_q <= left_q - LengthWidth'(beats);
      if (ends && blocks_q != 10'd1) begin
        beat_q   <= next_block;
        block_q  <= next_block;
        blocks_q <= blocks_q - 10'd1;
        left_q   <= LengthWidth'(blocks_q == 10'd2 ? job_q.tail_beats : job_q.full_beats);
      end else if (ends && rows_q != 12'd1) begin
        beat_q   <= next_row;
        block_q  <= next_row;
        row_q    <= next_row;
        rows_q   <= rows_q - 12'd1;
        blocks_q <= job_q.merge_blocks ? 10'd1 : job_q.blocks;
        left_q   <= job_q.merge_blocks ? LengthWidth'(job_q.line_beats) : LengthWidth'(job_q.full_beats);
      end else if (ends) begin
        active_q <= 1'b0;
      end
    end
  end

`ifndef SYNTHESIS
  assert property (@(posedge clk_i) disable iff (!rst_ni) !start_i || idle_o);
  // A request leaves neither its region nor the MaxBeats that it begins in.
  assert property (@(posedge clk_i) disable iff (!rst_ni) !valid_o || (beats != '0 && 7'(beat_q[5:0]) + beats <= 7'(MaxBeats)));
  assert property (@(posedge clk_i) disable iff (!rst_ni) !valid_o || (beat_q >= BeatWidth'(region_i.first) && limit <= BeatWidth'(region_i.limit)));
`endif
endmodule
