// The on-chip buffer: 4 banks, word w in bank w mod 4. A request names `Window` words from `word` on, of which `mask` says which are meant;
// it is granted as a whole or not at all, in the same cycle. Lower requesters come first, but that 2 may be put before all. Words that are read appear
// in the next cycle, in the order of the window. Of the read requester 3, and the write requester 1, only the first word of the window is looked at.
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
  input  logic                                rd_first_i,  // requester 2 comes first
  output logic [3:0]                          rd_grant_o,
  output logic [3:0]                          rd_fault_o,
  output logic [3:0][Window-1:0][Lanes*8-1:0] rd_data_o,
  input  logic [1:0]                          wr_valid_i,
  input  logic [1:0][19:0]                    wr_word_i,
  input  logic [1:0][Window-1:0]              wr_mask_i,
  input  logic [1:0][Window-1:0][Lanes*8-1:0] wr_data_i,
  input  logic [Lanes-1:0]                    wr_lanes_i,  // bytes of each word that requester 0 writes; the other writes all
  output logic [1:0]                          wr_grant_o,
  output logic [1:0]                          wr_fault_o
);
  localparam int unsigned Banks = Window;
  localparam int unsigned Rows = BufferWords / Banks;
  localparam int unsigned RowBits = $clog2(Rows);

  typedef struct packed {
    logic             grant;
    logic             fault;
    logic [Banks-1:0] banks;  // that are read or written
  } answer_t;

  logic [Banks-1:0]               bank_read, bank_write;
  logic [Banks-1:0][RowBits-1:0]  read_row, write_row;
  logic [Banks-1:0]               write_second;  // the bank's word comes from requester 1
  logic [Lanes*8-1:0]             read_data [Banks];
  logic [Lanes*8-1:0]             write_data [Banks];
  logic [1:0]                     turn_q [4];  // bank of the first word of what was read last

  // Row of a bank's word in the window from `word` on.
  function automatic logic [RowBits-1:0] row_of(logic [19:0] word, logic [1:0] bank);
    return RowBits'(word[19:2]) + RowBits'(bank < word[1:0]);
  endfunction

  function automatic logic over(logic [19:0] word, logic [Window-1:0] mask);
    logic found;
    found = 1'b0;
    for (int unsigned t = 0; t < Window; t++) begin
      if (mask[t] && 32'(20'(word + 20'(t))) >= BufferWords) found = 1'b1;
    end
    return found;
  endfunction

  // What becomes of a request, if those before it have taken some banks.
  function automatic answer_t answer(logic valid, logic [19:0] word, logic [Window-1:0] mask, logic [Banks-1:0] taken);
    logic [Banks-1:0] wanted;
    answer_t found;
    for (int unsigned b = 0; b < Banks; b++) wanted[b] = mask[2'(b) - word[1:0]];
    found.fault = valid && over(word, mask);
    found.grant = valid && (found.fault || (wanted & taken) == '0);
    found.banks = found.grant && !found.fault ? wanted : '0;
    return found;
  endfunction

  always_comb begin
    answer_t found;
    logic [1:0] i;
    i = '0;
    rd_grant_o = '0;
    rd_fault_o = '0;
    bank_read = '0;
    read_row = '0;
    for (int unsigned k = 0; k < 4; k++) begin
      i = !rd_first_i || k == 3 ? 2'(k) : k == 0 ? 2'd2 : 2'(k - 1);
      found = answer(rd_valid_i[i], rd_word_i[i], i != 2'd3 ? rd_mask_i[i] : Window'(rd_mask_i[i][0]), bank_read);
      rd_grant_o[i] = found.grant;
      rd_fault_o[i] = found.fault;
      bank_read |= found.banks;
      for (int unsigned b = 0; b < Banks; b++) begin
        if (found.banks[b]) read_row[b] = row_of(rd_word_i[i], 2'(b));
      end
    end
  end

  always_comb begin
    answer_t found;
    bank_write = '0;
    write_row = '0;
    write_second = '0;
    for (int unsigned i = 0; i < 2; i++) begin
      found = answer(wr_valid_i[i], wr_word_i[i], i < 1 ? wr_mask_i[i] : Window'(wr_mask_i[i][0]), bank_write);
      wr_grant_o[i] = found.grant;
      wr_fault_o[i] = found.fault;
      bank_write |= found.banks;
      for (int unsigned b = 0; b < Banks; b++) begin
        if (found.banks[b]) begin
          write_row[b] = row_of(wr_word_i[i], 2'(b));
          write_second[b] = i == 1;
        end
      end
    end
  end

  for (genvar b = 0; b < Banks; b++) begin : gen_bank
    assign write_data[b] = write_second[b] ? wr_data_i[1][0] : wr_data_i[0][2'(b) - wr_word_i[0][1:0]];

    lf_memory #(
      .Width(Lanes * 8),
      .Depth(Rows),
      .Part (8)
    ) u_bank (
      .clk_i,
      .read_i         (bank_read[b]),
      .read_address_i (read_row[b]),
      .read_data_o    (read_data[b]),
      .write_i        (bank_write[b]),
      .write_address_i(write_row[b]),
      .write_parts_i  (write_second[b] ? '1 : wr_lanes_i),
      .write_data_i   (write_data[b])
    );
  end

  always_ff @(posedge clk_i) begin
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
      rd_data_o[2][t] = read_data[turn_q[2] + 2'(t)];
    end
    rd_data_o[3][0] = read_data[turn_q[3]];
  end

  logic unused;
  assign unused = ^{rd_mask_i[3][Window-1:1], wr_mask_i[1][Window-1:1], wr_data_i[1][Window-1:1]};
endmodule
