// Prepares the transfer at the head of a queue: checks its fields, finds its first rows in DRAM and on chip.
//
// It works on the head before the head may start, so that the time it takes is hidden: one multiplier makes
// all products, one after the other.
`include "lf_assert.svh"

module lf_job
  import lf_isa_pkg::*;
  import lf_dma_pkg::*;
#(
  parameter int unsigned Lanes = 16,
  parameter bit          Store = 1'b0  // of the queue of stores
) (
  input  logic        clk_i,
  input  logic        rst_ni,
  // Head of the queue. It stays until take_i.
  input  logic        valid_i,
  input  transfer_t   transfer_i,
  input  entry_t      entry_i,
  // The job. ready_o stays high until take_i, which comes together with the end of the head.
  output logic        ready_o,
  output logic        bad_o,    // level: the head has a field that no transfer may have
  output job_t        job_o,
  input  logic        take_i
);
  localparam int unsigned WordBeats = Lanes / BeatBytes;  // beats of a word
  localparam int unsigned FactorWords = FactorBytes;  // words of a row of factors
  localparam int unsigned TableWords = TableBytes / Lanes;  // words of a table

  // The first states choose operands; the product is there two cycles later.
  typedef enum logic [3:0] {
    Tail,   // bytes of a row in the last block
    Body,   // words of all other blocks of a row
    Row,    // beats from row 0 to the first row
    Block,  // beats from block 0 to the first block
    Base,   // words from the beginning of the space
    Chip,   // words from block 0 to the first block
    Rows,   // beats of all rows, if they follow one another
    Slot,   // words from slot 0 to the first row's
    Wait,
    Last,
    Ready,
    Bad
  } state_e;

  state_e                 state_d, state_q;
  state_e                 chosen;        // Wait: nothing
  state_e                 operands_of_q;
  state_e                 product_of_q;
  logic [19:0]            long_q;
  logic [15:0]            short_q;
  logic [35:0]            product_q;
  logic                   bad_q;
  logic                   outside_q;     // the row's number is not that of its slot: the remainder is to come
  logic [11:0]            slot_q;
  logic [23:0]            tail_beats_q;
  logic [4:0]             rest_bytes_q;
  logic [LengthWidth-1:0] line_beats_q;
  logic [LengthWidth-1:0] first_beats_q;
  logic [BeatWidth-1:0]   beat_q;
  logic [PlaceWidth-1:0]  base_q;
  logic [PlaceWidth-1:0]  place_q;
  logic                   merge_blocks_q;
  logic                   merge_rows_q;

  logic [19:0]            long;
  logic [15:0]            short;
  logic [15:0]            base_words;  // of what the base counts
  logic [23:0]            full_beats;
  logic                   row_merges;
  logic                   modulo_valid;
  logic [11:0]            remainder;
  logic                   unused_modulo_ready;
  logic                   unused;

  assign full_beats = 24'(transfer_i.columns) * 24'(WordBeats);
  assign unused     = ^{transfer_i.reserved, transfer_i.kind, entry_i.descriptor, entry_i.factor,
                        entry_i.wait_valid, entry_i.target};

  always_comb begin
    unique case (space_e'(transfer_i.space))
      SpaceFactors: base_words = 16'(FactorWords);
      SpaceTables:  base_words = 16'(TableWords);
      default:      base_words = 16'd1;
    endcase
  end

  always_comb begin
    unique case (state_q)
      Body:    {long, short} = {transfer_i.columns, 6'd0, transfer_i.blocks - 10'd1};
      Row:     {long, short} = {transfer_i.row_beats, entry_i.row};
      Block:   {long, short} = {transfer_i.block_beats, 6'd0, Store ? entry_i.to_block : entry_i.from_block};
      Base:    {long, short} = {20'(transfer_i.base), base_words};
      Chip:    {long, short} = {transfer_i.block_words, 6'd0, Store ? entry_i.from_block : entry_i.to_block};
      Rows:    {long, short} = {transfer_i.row_beats, 4'd0, entry_i.count};
      Slot:    {long, short} = {transfer_i.slot_words, 4'd0, slot_q};
      default: {long, short} = {transfer_i.columns, 9'd0, transfer_i.tail};
    endcase
  end

  always_comb begin
    state_d = state_q;
    chosen  = state_q;
    unique case (state_q)
      Tail:  if (valid_i) state_d = Body;
             else chosen = Wait;
      Body:  state_d = Row;
      Row:   state_d = Block;
      Block: state_d = Base;
      Base:  state_d = Chip;
      Chip:  state_d = Rows;
      Rows:  state_d = Slot;
      Slot:  if (!outside_q) state_d = Wait;
             else chosen = Wait;
      Wait:  state_d = Last;
      Last:  state_d = bad_q ? Bad : Ready;
      Ready: if (take_i) state_d = Tail;
      default: ;
    endcase
    if (state_q >= Wait) chosen = Wait;
  end

  // A division takes longer than the states up to Slot.
  lf_modulo u_modulo (
    .clk_i,
    .rst_ni,
    .valid_i    (state_q == Body && outside_q),
    .value_i    (entry_i.slot),
    .divisor_i  (transfer_i.slots),
    .ready_o    (unused_modulo_ready),
    .valid_o    (modulo_valid),
    .remainder_o(remainder)
  );

  // No reset, so that the registers may be those of the multiplier.
  always_ff @(posedge clk_i) begin
    long_q    <= long;
    short_q   <= short;
    product_q <= 36'(long_q) * 36'(short_q);
  end

  assign row_merges = merge_blocks_q &&
                      (entry_i.count == 12'd1 || LengthWidth'(transfer_i.row_beats) == line_beats_q);

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      state_q        <= Tail;
      operands_of_q  <= Wait;
      product_of_q   <= Wait;
      bad_q          <= 1'b0;
      outside_q      <= 1'b0;
      slot_q         <= '0;
      tail_beats_q   <= '0;
      rest_bytes_q   <= '0;
      line_beats_q   <= '0;
      first_beats_q  <= '0;
      beat_q         <= '0;
      base_q         <= '0;
      place_q        <= '0;
      merge_blocks_q <= 1'b0;
      merge_rows_q   <= 1'b0;
    end else begin
      state_q       <= state_d;
      operands_of_q <= chosen;
      product_of_q  <= operands_of_q;
      if (state_q == Tail) begin
        slot_q    <= entry_i.slot[11:0];
        outside_q <= entry_i.slot >= {4'd0, transfer_i.slots};
        bad_q     <= entry_i.count == '0 || transfer_i.columns == '0 || transfer_i.blocks == '0 ||
                     transfer_i.slots == '0 || transfer_i.tail == '0 || transfer_i.tail > 7'(Lanes) ||
                     transfer_i.class_ > ClassInstruction || transfer_i.space > SpaceTables ||
                     (Store && transfer_i.space != SpaceBuffer) || transfer_i.dram[3:0] != '0;
        merge_blocks_q <= transfer_i.blocks == 10'd1 || 24'(transfer_i.block_beats) == full_beats;
      end
      if (modulo_valid) begin
        slot_q    <= remainder;
        outside_q <= 1'b0;
      end
      unique case (product_of_q)
        Tail: begin
          tail_beats_q <= 24'((product_q[26:0] + 27'd15) >> 4);
          rest_bytes_q <= product_q[3:0] == '0 ? 5'd16 : 5'(product_q[3:0]);
        end
        Body:  line_beats_q <= LengthWidth'(product_q) * LengthWidth'(WordBeats) + LengthWidth'(tail_beats_q);
        Row:   beat_q <= BeatWidth'(transfer_i.dram[31:4]) + BeatWidth'(product_q);
        Block: beat_q <= beat_q + BeatWidth'(product_q);
        Base:  base_q <= PlaceWidth'(product_q);
        Chip:  base_q <= base_q + PlaceWidth'(product_q);
        Rows: begin
          merge_rows_q <= row_merges;
          if (!merge_blocks_q) first_beats_q <= LengthWidth'(full_beats);
          else if (!row_merges || entry_i.count == 12'd1) first_beats_q <= line_beats_q;
          else first_beats_q <= LengthWidth'(product_q);
        end
        Slot:    place_q <= base_q + PlaceWidth'(product_q);
        default: ;
      endcase
    end
  end

  assign ready_o = state_q == Ready;
  assign bad_o   = state_q == Bad;
  assign job_o   = '{
    class_:       class_e'(transfer_i.class_),
    space:        space_e'(transfer_i.space),
    rows:         entry_i.count,
    blocks:       transfer_i.blocks,
    columns:      transfer_i.columns,
    tail:         transfer_i.tail,
    beat:         beat_q,
    row_beats:    transfer_i.row_beats,
    block_beats:  transfer_i.block_beats,
    merge_blocks: merge_blocks_q,
    merge_rows:   merge_rows_q,
    full_beats:   full_beats,
    tail_beats:   tail_beats_q,
    line_beats:   line_beats_q,
    first_beats:  first_beats_q,
    rest_bytes:   rest_bytes_q,
    slots:        transfer_i.slots,
    slot:         slot_q,
    base:         base_q,
    place:        place_q,
    slot_words:   transfer_i.slot_words,
    block_words:  transfer_i.block_words
  };

  `LF_ASSERT(TakenOnceReady, !take_i || ready_o, "no job is ready to take")
  `LF_HELD(JobHeld, ready_o, take_i, job_o)
endmodule
