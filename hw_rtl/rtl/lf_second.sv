// Fetches the second operand, or held sums, ahead of the columns that meet them: up to 4 columns wait here.
`include "lf_assert.svh"

module lf_second
  import lf_isa_pkg::*;
  import lf_setup_pkg::*;
#(
  parameter int unsigned Lanes = 16,
  parameter int unsigned BufferWords = 16384
) (
  input  logic                           clk_i,
  input  logic                           rst_ni,
  input  logic                           start_i,
  input  command_t                       command_i,
  output logic                           busy_o,
  output logic                           rd_valid_o,
  output logic [19:0]                    rd_word_o,
  output logic [Window-1:0]              rd_mask_o,
  input  logic                           rd_grant_i,
  input  logic [Window-1:0][Lanes*8-1:0] rd_data_i,
  output logic                           fault_o,
  output logic                           ready_o,  // the column after those used will be there in two cycles
  input  logic                           use_i,  // promised, the last time, to a column of the first operand
  input  logic                           pop_i,  // the oldest is read for the last time
  output logic [Window-1:0][Lanes*8-1:0] data_o
);
  localparam int unsigned Depth = 4;

  logic               busy_q, arriving_q;
  logic [9:0]         blocks_left_q;
  logic [11:0]        rows_q, rows_left_q, width_q, columns_left_q;
  logic [31:0]        first_offset_q, offset_q, row_step_q;
  logic signed [33:0] wrap_q, wrapped;  // step to the next row, where the ring begins anew; offset after it
  logic [35:0]        block_q, row_q, address_q, next_row;  // words: of the block, of the row, of the column
  logic [19:0]        block_words_q;
  logic [2:0]         step_q;
  logic               held_q;
  logic [2:0]         taken_q, promised_q;  // places that are or will be filled; of them, not yet promised
  logic [1:0]         put_q, get_q;
  logic [Window-1:0][Lanes*8-1:0] store_q [Depth];
  logic               held, vector;

  assign held = !needs_second(command_i.d.operation);
  assign vector = !held && command_i.d.b_vector;  // one column of a row serves all

  always_comb begin
    fault_o = busy_q && taken_q != 3'(Depth) &&
              address_q >= (held_q ? 36'(BufferWords - 3) : 36'(BufferWords));
    rd_valid_o = busy_q && taken_q != 3'(Depth) && !fault_o;
    rd_word_o = address_q[19:0];
    rd_mask_o = held_q ? '1 : Window'(1);
    wrapped = signed'({2'b00, offset_q}) + wrap_q;
    next_row = wrapped < 0 ? row_q + 36'(row_step_q) : row_q + 36'(wrap_q);
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      busy_q <= 1'b0;
      blocks_left_q <= '0;
      rows_q <= '0;
      rows_left_q <= '0;
      width_q <= '0;
      columns_left_q <= '0;
      first_offset_q <= '0;
      offset_q <= '0;
      row_step_q <= '0;
      wrap_q <= '0;
      block_q <= '0;
      row_q <= '0;
      address_q <= '0;
      block_words_q <= '0;
      step_q <= '0;
      held_q <= 1'b0;
    end else if (start_i) begin
      busy_q <= 1'b1;
      blocks_left_q <= command_i.d.out_blocks;
      rows_q <= command_i.count;
      rows_left_q <= command_i.count;
      width_q <= vector ? 12'd1 : command_i.d.o_width;
      columns_left_q <= vector ? 12'd1 : command_i.d.o_width;
      first_offset_q <= command_i.b.offset;
      offset_q <= command_i.b.offset;
      row_step_q <= command_i.b.row_step;
      wrap_q <= signed'({2'b00, command_i.b.row_step}) - signed'({2'b00, command_i.b.limit});
      block_q <= 36'(command_i.d.b_base) + 36'(command_i.b.offset);
      row_q <= 36'(command_i.d.b_base) + 36'(command_i.b.offset);
      address_q <= 36'(command_i.d.b_base) + 36'(command_i.b.offset);
      block_words_q <= 20'(command_i.d.b_block_words);
      held_q <= held;
      step_q <= held ? 3'(Window) : 3'd1;
    end else if (rd_valid_o && rd_grant_i) begin
      address_q <= address_q + 36'(step_q);
      columns_left_q <= columns_left_q - 1'b1;
      if (columns_left_q == 12'd1) begin
        columns_left_q <= width_q;
        address_q <= next_row;
        row_q <= next_row;
        offset_q <= wrapped < 0 ? offset_q + row_step_q : wrapped[31:0];
        rows_left_q <= rows_left_q - 1'b1;
        if (rows_left_q == 12'd1) begin
          rows_left_q <= rows_q;
          offset_q <= first_offset_q;
          address_q <= block_q + 36'(block_words_q);
          row_q <= block_q + 36'(block_words_q);
          block_q <= block_q + 36'(block_words_q);
          blocks_left_q <= blocks_left_q - 1'b1;
          busy_q <= blocks_left_q != 10'd1;
        end
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      taken_q <= '0;
      promised_q <= '0;
      put_q <= '0;
      get_q <= '0;
      arriving_q <= 1'b0;
    end else begin
      arriving_q <= rd_valid_o && rd_grant_i;
      taken_q <= taken_q + 3'(rd_valid_o && rd_grant_i) - 3'(pop_i);
      promised_q <= promised_q + 3'(rd_valid_o && rd_grant_i) - 3'(use_i);
      put_q <= put_q + 2'(arriving_q);
      get_q <= get_q + 2'(pop_i);
    end
  end

  always_ff @(posedge clk_i) begin
    if (arriving_q) store_q[put_q] <= rd_data_i;
  end

  assign busy_o = busy_q;
  assign ready_o = promised_q != '0;
  assign data_o = store_q[get_q];

  logic unused;
  assign unused = ^{command_i, wrapped[32]};

  `LF_ASSERT(StartedWhenFree, !start_i || !busy_q, "a command comes while one is at work")
  `LF_ASSERT(PlacesExist, promised_q <= taken_q && taken_q <= 3'(Depth),
             "more columns wait than there are places")
  `LF_ASSERT(UsedOnceFetched, !use_i || promised_q != '0, "a column is promised that is not on its way")
  `LF_ASSERT(PoppedOnceUsed, !pop_i || taken_q > promised_q, "a column goes that was not promised")
endmodule
