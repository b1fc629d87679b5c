// Reads the program ahead of the sequencer, into a ring that keeps the words of the outermost loop.
module lf_fetch
  import lf_isa_pkg::*;
  import lf_dma_pkg::*;
#(
  parameter int unsigned RingWords = 1024,  // a power of 2; LoopWords and what is read ahead
  parameter int unsigned Ahead = 64,        // words that are read ahead
  parameter int unsigned Chunk = 32         // words asked for at once; requests do not cross multiples of it
) (
  input  logic         clk_i,
  input  logic         rst_ni,
  input  logic         run_i,
  input  region_t      region_i,
  input  logic [27:0]  program_i,  // beat of the first word
  input  logic [31:0]  words_i,    // of the program
  // The sequencer's place.
  input  logic [31:0]  keep_i,     // the first word that may be wanted again
  input  logic [31:0]  place_i,    // the word that is wanted in the next cycle
  output logic         valid_o,    // it is there
  output logic [127:0] word_o,
  output logic         outside_o,  // level: the program lies outside of what may be read
  // Requests. Accepted when valid and ready.
  output logic         request_valid_o,
  output request_t     request_o,
  input  logic         request_ready_i,
  // Words, in order.
  input  logic         beat_valid_i,
  input  logic [127:0] beat_i
);
  localparam int unsigned PointerWidth = $clog2(RingWords);

  if (RingWords != 1 << PointerWidth || RingWords < LoopWords + Ahead) begin : gen_bad_ring
    $error("lf_fetch: found RingWords = %0d; accepted: powers of 2, from %0d on", RingWords, LoopWords + Ahead);
  end
  if (Chunk == 0 || MaxBeats % Chunk != 0) begin : gen_bad_chunk
    $error("lf_fetch: found Chunk = %0d; accepted: what divides %0d", Chunk, MaxBeats);
  end

  logic [31:0] asked_q;  // words asked for
  logic [31:0] here_q;   // words that have come
  logic        valid_q;
  logic [32:0] beat;     // of the next word to ask for
  logic [32:0] limit;
  logic [31:0] left;
  logic [6:0]  room;     // beats up to the next multiple of Chunk
  logic [6:0]  beats;
  logic        wanted;

  assign beat   = 33'(program_i) + 33'(asked_q);
  assign left   = words_i - asked_q;
  assign room   = 7'(Chunk) - 7'(beat[$clog2(Chunk)-1:0]);
  assign beats  = left < 32'(room) ? left[6:0] : room;
  assign limit  = beat + 33'(beats);
  assign wanted = run_i && left != '0 && asked_q + 32'(beats) - place_i <= 32'(Ahead) && asked_q + 32'(beats) - keep_i <= 32'(RingWords);

  assign outside_o       = wanted && (beat < 33'(region_i.first) || limit > 33'(region_i.limit));
  assign request_valid_o = wanted && !outside_o;
  assign request_o       = '{beat: beat[27:0], beats: beats, class_: ClassInstruction, last: 1'b0};
  assign valid_o         = valid_q;

  lf_memory #(
    .Width(WordBits),
    .Depth(RingWords)
  ) u_ring (
    .clk_i,
    .read_i         (run_i),
    .read_address_i (place_i[PointerWidth-1:0]),
    .read_data_o    (word_o),
    .write_i        (beat_valid_i),
    .write_address_i(here_q[PointerWidth-1:0]),
    .write_parts_i  (1'b1),
    .write_data_i   (beat_i)
  );

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      asked_q <= '0;
      here_q  <= '0;
      valid_q <= 1'b0;
    end else begin
      if (request_valid_o && request_ready_i) asked_q <= asked_q + 32'(beats);
      if (beat_valid_i) here_q <= here_q + 32'd1;
      valid_q <= run_i && place_i < here_q;
    end
  end

`ifndef SYNTHESIS
  // What has come was asked for, and does not overwrite what a loop may still need.
  assert property (@(posedge clk_i) disable iff (!rst_ni) !beat_valid_i || here_q < asked_q);
  assert property (@(posedge clk_i) disable iff (!rst_ni) !beat_valid_i || here_q - keep_i < 32'(RingWords));
`endif
endmodule
