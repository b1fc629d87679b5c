// The on-chip buffer: 4 banks, word w in bank w mod 4. A request names `Window` words from `word` on, of which `mask` says which are meant;
// it is granted as a whole or not at all, in the same cycle. Lower requesters come first. Words that are read appear in the next cycle, in the order
// of the window. Of the read requesters 2 and 3, and the write requester 1, only the first word of the window is looked at.
// A request with a word behind the end is granted, but nothing is read or written; `fault` says so in the same cycle.
module lf_buffer
  import lf_isa_pkg::*;
#(
  parameter int unsigned Lanes = 16,  // bytes of a word
  parameter int unsigned BufferWords = 16384  // a multiple of 4
) (
  input  logic                                clk_i,
  input  logic                                rst_ni,
  input  logic [3:0]                          rd_valid_i,
  input  logic [3:0][19:0]                    rd_word_i,
  input  logic [3:0][Window-1:0]              rd_mask_i,
  output logic [3:0]                          rd_grant_o,
  output logic [3:0]                          rd_fault_o,
  output logic [3:0][Window-1:0][Lanes*8-1:0] rd_data_o,
  input  logic [1:0]                          wr_valid_i,
  input  logic [1:0][19:0]                    wr_word_i,
  input  logic [1:0][Window-1:0]              wr_mask_i,
  input  logic [1:0][Window-1:0][Lanes*8-1:0] wr_data_i,
  output logic [1:0]                          wr_grant_o,
  output logic [1:0]                          wr_fault_o
);
  localparam int unsigned Banks = Window;
  localparam int unsigned Rows = BufferWords / Banks;
  localparam int unsigned RowBits = $clog2(Rows);

  logic [Banks-1:0]               bank_read, bank_write;
  logic [Banks-1:0][RowBits-1:0]  read_row, write_row;
  logic [Banks-1:0]               write_second;  // the bank's word comes from requester 1
  logic [Lanes*8-1:0]             read_data [Banks];
  logic [Lanes*8-1:0]             write_data [Banks];
  logic [1:0]                     turn_q [4];  // bank of the first word of what was read last

  // Banks that a window needs.
  function automatic logic [Banks-1:0] banks_of(logic [1:0] first, logic [Window-1:0] mask);
    unique case (first)
      2'd0: return mask;
      2'd1: return {mask[2:0], mask[3]};
      2'd2: return {mask[1:0], mask[3:2]};
      default: return {mask[0], mask[3:1]};
    endcase
  endfunction

  function automatic logic over(logic [19:0] word, logic [Window-1:0] mask);
    logic found;
    found = 1'b0;
    for (int unsigned t = 0; t < Window; t++) begin
      if (mask[t] && 32'(20'(word + 20'(t))) >= BufferWords) found = 1'b1;
    end
    return found;
  endfunction

  always_comb begin
    logic [Banks-1:0] wanted;
    logic [Window-1:0] mask;
    bank_read = '0;
    read_row = '0;
    rd_grant_o = '0;
    rd_fault_o = '0;
    for (int unsigned i = 0; i < 4; i++) begin
      mask = i < 2 ? rd_mask_i[i] : Window'(rd_mask_i[i][0]);
      wanted = banks_of(rd_word_i[i][1:0], mask);
      if (rd_valid_i[i]) begin
        if (over(rd_word_i[i], mask)) begin
          rd_grant_o[i] = 1'b1;
          rd_fault_o[i] = 1'b1;
        end else if ((wanted & bank_read) == '0) begin
          rd_grant_o[i] = 1'b1;
          bank_read |= wanted;
          for (int unsigned b = 0; b < Banks; b++) begin
            if (wanted[b]) read_row[b] = RowBits'(rd_word_i[i][19:2]) + RowBits'(2'(b) < rd_word_i[i][1:0]);
          end
        end
      end
    end
  end

  always_comb begin
    logic [Banks-1:0] wanted;
    logic [Window-1:0] mask;
    bank_write = '0;
    write_row = '0;
    write_second = '0;
    wr_grant_o = '0;
    wr_fault_o = '0;
    for (int unsigned i = 0; i < 2; i++) begin
      mask = i < 1 ? wr_mask_i[i] : Window'(wr_mask_i[i][0]);
      wanted = banks_of(wr_word_i[i][1:0], mask);
      if (wr_valid_i[i]) begin
        if (over(wr_word_i[i], mask)) begin
          wr_grant_o[i] = 1'b1;
          wr_fault_o[i] = 1'b1;
        end else if ((wanted & bank_write) == '0) begin
          wr_grant_o[i] = 1'b1;
          bank_write |= wanted;
          for (int unsigned b = 0; b < Banks; b++) begin
            if (wanted[b]) begin
              write_row[b] = RowBits'(wr_word_i[i][19:2]) + RowBits'(2'(b) < wr_word_i[i][1:0]);
              write_second[b] = i == 1;
            end
          end
        end
      end
    end
  end

  for (genvar b = 0; b < Banks; b++) begin : gen_bank
    assign write_data[b] = write_second[b] ? wr_data_i[1][0] : wr_data_i[0][2'(b) - wr_word_i[0][1:0]];

    lf_memory #(
      .Width(Lanes * 8),
      .Depth(Rows)
    ) u_bank (
      .clk_i,
      .read_i         (bank_read[b]),
      .read_address_i (read_row[b]),
      .read_data_o    (read_data[b]),
      .write_i        (bank_write[b]),
      .write_address_i(write_row[b]),
      .write_data_i   (write_data[b])
    );
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      turn_q <= '{default: '0};
    end else begin
      for (int unsigned i = 0; i < 4; i++) begin
        if (rd_grant_o[i]) turn_q[i] <= rd_word_i[i][1:0];
      end
    end
  end

  always_comb begin
    rd_data_o = '0;
    for (int unsigned t = 0; t < Window; t++) begin
      rd_data_o[0][t] = read_data[turn_q[0] + 2'(t)];
      rd_data_o[1][t] = read_data[turn_q[1] + 2'(t)];
    end
    rd_data_o[2][0] = read_data[turn_q[2]];
    rd_data_o[3][0] = read_data[turn_q[3]];
  end

  logic unused;
  assign unused = ^{rd_mask_i[2][Window-1:1], rd_mask_i[3][Window-1:1], wr_mask_i[1][Window-1:1], wr_data_i[1][Window-1:1]};
endmodule
