// Reads the program ahead of the sequencer, into a ring that keeps the words of the outermost loop.
//
// A word goes from the ring to a register, and is run from there: one a cycle, none in the one after a jump.
`include "lf_assert.svh"

module lf_fetch
  import lf_isa_pkg::*;
  import lf_dma_pkg::*;
  import lf_port_pkg::*;
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
  // The sequencer.
  output program_word_t word_o,
  input  program_step_t step_i,
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
    $error("lf_fetch: found RingWords = %0d; accepted: powers of 2, from %0d on", RingWords,
           LoopWords + Ahead);
  end
  if (Chunk != 1 << $clog2(Chunk) || MaxBeats % Chunk != 0) begin : gen_bad_chunk
    $error("lf_fetch: found Chunk = %0d; accepted: powers of 2 that divide %0d", Chunk, MaxBeats);
  end

  // A request takes as many cycles as it has steps; it is of many words.
  typedef enum logic [1:0] {
    Size,
    Sum,
    Check,
    Ask
  } state_e;

  state_e      state_q;
  logic [31:0] asked_q;    // words asked for
  logic [31:0] after_q;    // the same, after the next request
  logic [32:0] beat_q;     // of the next word to ask for
  logic [32:0] limit_q;    // first beat behind the next request
  logic [6:0]  beats_q;    // of the next request
  logic        outside_q;
  logic        fits_q;     // there is room in the ring, and it is not too far ahead
  logic [31:0] here_q;     // words that have come
  logic [31:0] read_q;     // next word to be read from the ring
  logic        there_q;    // the ring's output is a word
  logic        valid_q;
  logic [127:0] word_q;

  logic [32:0]  beat;
  logic [31:0]  left;
  logic [6:0]   room;      // beats up to the next multiple of Chunk
  logic         asks;
  logic         move;      // from the ring's output to the register
  logic         jump;
  logic         read;
  logic [31:0]  place;     // of the word that is read
  logic [127:0] there;

  assign beat = 33'(program_i) + 33'(asked_q);
  assign left = words_i - asked_q;
  assign room = 7'(Chunk) - 7'(beat[$clog2(Chunk)-1:0]);
  assign asks = run_i && state_q == Ask && fits_q;

  assign outside_o       = asks && outside_q;
  assign request_valid_o = asks && !outside_q;
  assign request_o       = '{beat: beat_q[27:0], beats: beats_q, class_: ClassInstruction, last: 1'b0};

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      state_q   <= Size;
      asked_q   <= '0;
      after_q   <= '0;
      beat_q    <= '0;
      limit_q   <= '0;
      beats_q   <= '0;
      outside_q <= 1'b0;
      fits_q    <= 1'b0;
    end else begin
      fits_q <= after_q - read_q <= 32'(Ahead) && after_q - step_i.keep <= 32'(RingWords);
      unique case (state_q)
        Size: begin
          beat_q  <= beat;
          beats_q <= left < 32'(room) ? left[6:0] : room;
          if (left != '0) state_q <= Sum;
        end
        Sum: begin
          after_q <= asked_q + 32'(beats_q);
          limit_q <= beat_q + 33'(beats_q);
          state_q <= Check;
        end
        Check: begin
          outside_q <= beat_q < 33'(region_i.first) || limit_q > 33'(region_i.limit);
          state_q   <= Ask;
        end
        default: if (request_valid_o && request_ready_i) begin
          asked_q <= after_q;
          state_q <= Size;
        end
      endcase
    end
  end

  assign move  = there_q && (!valid_q || step_i.take);
  assign jump  = step_i.jump && valid_q;
  assign read  = jump ? step_i.take : read_q != here_q && (!there_q || move);
  assign place = jump ? step_i.target : read_q;

  lf_memory #(
    .Width(WordBits),
    .Depth(RingWords)
  ) u_ring (
    .clk_i,
    .read_i         (read),
    .read_address_i (place[PointerWidth-1:0]),
    .read_data_o    (there),
    .write_i        (beat_valid_i),
    .write_address_i(here_q[PointerWidth-1:0]),
    .write_parts_i  (1'b1),
    .write_data_i   (beat_i)
  );

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      here_q  <= '0;
      read_q  <= '0;
      there_q <= 1'b0;
      valid_q <= 1'b0;
      word_q  <= '0;
    end else begin
      if (beat_valid_i) here_q <= here_q + 32'd1;
      if (read) read_q <= place + 32'd1;
      if (read || move) there_q <= read;
      if (move) word_q <= there;
      // What has been read behind a jump is dropped.
      if (step_i.take || move) valid_q <= move && !jump;
    end
  end

  assign word_o = '{valid: valid_q, word: word_q};

  `LF_ASSERT(BeatAskedFor, !beat_valid_i || here_q < asked_q, "a word comes that was not asked for")
  `LF_ASSERT(RingHasRoom, !beat_valid_i || here_q - step_i.keep < 32'(RingWords),
             "a word overwrites one that a loop may still need")
  `LF_ASSERT(TakenOnceThere, !step_i.take || valid_q, "no word is there to take")
  `LF_ASSERT(JumpBack, !(step_i.take && step_i.jump) || step_i.target < here_q,
             "a jump leads to a word that has not come")
  `LF_HELD(WordHeld, valid_q, step_i.take, word_q)
endmodule
