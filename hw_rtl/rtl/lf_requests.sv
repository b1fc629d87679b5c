// Cuts a transfer into requests: stretches of DRAM that follow one another are asked for as one, in pieces of
// up to MaxBeats.
//
// In two stages: one finds a piece in each cycle, the next holds it as a request. A job may be taken before
// it may start.
`include "lf_assert.svh"

module lf_requests
  import lf_dma_pkg::*;
(
  input  logic     clk_i,
  input  logic     rst_ni,
  input  logic     load_i,     // take job_i; only while idle_o
  input  job_t     job_i,
  input  region_t  region_i,
  output logic     idle_o,     // every piece of the job has been found
  output logic     loaded_o,   // a job waits for start_i
  input  logic     start_i,    // the job may ask; only while loaded_o
  output logic     outside_o,  // level: the next request would leave the region; it is not made
  // Requests. Accepted when valid and ready.
  output logic     valid_o,
  output request_t request_o,
  input  logic     ready_i
);
  localparam int unsigned PageWidth = $clog2(MaxBeats);

  // The piece that is found.
  job_t                   job_q;
  logic                   loaded_q;
  logic                   active_q;
  logic [BeatWidth-1:0]   beat_q;    // where it begins
  logic [BeatWidth-1:0]   block_q;   // first beat of the block
  logic [BeatWidth-1:0]   row_q;     // first beat of the row
  logic [LengthWidth-1:0] left_q;    // beats of the stretch
  logic [9:0]             blocks_q;  // stretches of the row still to be asked for, this one too
  logic [11:0]            rows_q;    // rows still to be asked for, this one too

  // The request.
  logic                   valid_q;
  logic                   outside_q;
  request_t               request_q;

  logic [6:0]           room;   // beats up to the next multiple of MaxBeats
  logic [6:0]           beats;
  logic [PageWidth-1:0] final_; // of the last beat: the bits that differ from the first's
  logic                 ends;   // this piece ends its stretch
  logic                 above;  // the last beat lies behind the region
  logic                 find;
  logic                 row_end;
  logic                 job_end;
  logic [BeatWidth-1:0] next_block;
  logic [BeatWidth-1:0] next_row;
  logic                 unused;

  assign room       = 7'(MaxBeats) - {1'b0, beat_q[PageWidth-1:0]};
  assign ends       = left_q <= LengthWidth'(room);
  assign beats      = ends ? left_q[6:0] : room;
  assign final_     = ends ? PageWidth'(beat_q[PageWidth-1:0] + left_q[PageWidth-1:0] - PageWidth'(1)) : '1;
  assign above      = beat_q[BeatWidth-1:PageWidth] > (BeatWidth - PageWidth)'(region_i.limit[28:PageWidth])
                      || (beat_q[BeatWidth-1:PageWidth]
                          == (BeatWidth - PageWidth)'(region_i.limit[28:PageWidth])
                          && final_ >= region_i.limit[PageWidth-1:0]);
  assign row_end    = blocks_q == 10'd1;
  assign job_end    = row_end && rows_q == 12'd1;
  assign find       = (active_q || start_i) && (!valid_q || (ready_i && !outside_q));
  assign next_block = block_q + BeatWidth'(job_q.block_beats);
  assign next_row   = row_q + BeatWidth'(job_q.row_beats);
  assign idle_o     = !active_q && !loaded_q;
  assign loaded_o   = loaded_q;
  assign valid_o    = valid_q && !outside_q;
  assign outside_o  = valid_q && outside_q;
  assign request_o  = request_q;
  // Of the job, this unit needs only where it lies in DRAM.
  assign unused = ^{job_q.space, job_q.columns, job_q.tail, job_q.rest_bytes, job_q.slots, job_q.slot,
                    job_q.base, job_q.place, job_q.slot_words, job_q.block_words, job_q.beat, job_q.rows,
                    job_q.first_beats, job_q.merge_rows};

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      job_q    <= '0;
      loaded_q <= 1'b0;
      active_q <= 1'b0;
      beat_q   <= '0;
      block_q  <= '0;
      row_q    <= '0;
      left_q   <= '0;
      blocks_q <= '0;
      rows_q   <= '0;
    end else if (load_i) begin
      job_q    <= job_i;
      loaded_q <= 1'b1;
      beat_q   <= job_i.beat;
      block_q  <= job_i.beat;
      row_q    <= job_i.beat;
      left_q   <= job_i.first_beats;
      blocks_q <= job_i.merge_blocks ? 10'd1 : job_i.blocks;
      rows_q   <= job_i.merge_rows ? 12'd1 : job_i.rows;
    end else begin
      if (start_i) begin
        loaded_q <= 1'b0;
        active_q <= 1'b1;
      end
      if (find && !ends) begin
        beat_q <= {beat_q[BeatWidth-1:PageWidth] + (BeatWidth - PageWidth)'(1), PageWidth'(0)};
        left_q <= left_q - LengthWidth'(room);
      end else if (find && !row_end) begin
        beat_q   <= next_block;
        block_q  <= next_block;
        blocks_q <= blocks_q - 10'd1;
        left_q   <= LengthWidth'(blocks_q == 10'd2 ? job_q.tail_beats : job_q.full_beats);
      end else if (find && !job_end) begin
        beat_q   <= next_row;
        block_q  <= next_row;
        row_q    <= next_row;
        rows_q   <= rows_q - 12'd1;
        blocks_q <= job_q.merge_blocks ? 10'd1 : job_q.blocks;
        left_q   <= job_q.merge_blocks ? job_q.line_beats : LengthWidth'(job_q.full_beats);
      end else if (find) begin
        active_q <= 1'b0;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      valid_q   <= 1'b0;
      outside_q <= 1'b0;
      request_q <= '0;
    end else if (find) begin
      valid_q   <= 1'b1;
      outside_q <= beat_q < BeatWidth'(region_i.first) || above;
      request_q <= '{beat: beat_q[27:0], beats: beats, class_: job_q.class_, last: ends && job_end};
    end else if (ready_i && !outside_q) begin
      valid_q <= 1'b0;
    end
  end

  `LF_ASSERT(LoadedWhenIdle, !load_i || idle_o, "a job comes while one is at work")
  `LF_ASSERT(StartedOnceLoaded, !start_i || loaded_o, "no job is there to start")
  `LF_ASSERT(RequestInPage, !valid_o ||
             (request_o.beats != '0 && 7'(request_o.beat[PageWidth-1:0]) + request_o.beats <= 7'(MaxBeats)),
             "a request crosses a multiple of MaxBeats")
  `LF_ASSERT(RequestInRegion, !valid_o || (29'(request_o.beat) >= region_i.first &&
                                           29'(request_o.beat) + 29'(request_o.beats) <= region_i.limit),
             "a request leaves its region")
  `LF_HELD(RequestHeld, valid_o, ready_i, request_o)
endmodule
