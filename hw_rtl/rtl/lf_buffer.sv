// The on-chip buffer: 4 banks, word w in bank w mod 4. A request names `Window` words from `word` on, of
// which `mask` says which are meant; it is granted as a whole or not at all, in the same cycle. Lower
// requesters come first, but that 2 may be put before all. Words that are read appear in the next cycle, in
// the order of the window. Of the read requester 3, and the write requester 1, only the first word of the
// window is looked at. Of a granted request with a word behind the end nothing is read or written; `fault`
// says so in the same cycle. Requester 3 waits even for a bank whose request is not granted, so that no grant
// depends on a chain of others.
`include "lf_assert.svh"

module lf_buffer
  import lf_isa_pkg::*;
  import lf_port_pkg::*;
#(
  parameter int unsigned Lanes = 16,  // bytes of a word
  parameter int unsigned BufferWords = 16384  // a multiple of 4
) (
  input  logic                                clk_i,
  input  logic                                rst_ni,
  input  buffer_request_t [3:0]               rd_i,
  input  logic                                rd_first_i,  // requester 2 comes first
  output buffer_response_t [3:0]              rd_response_o,
  output logic [3:0][Window-1:0][Lanes*8-1:0] rd_data_o,
  input  buffer_request_t [1:0]               wr_i,
  input  logic [1:0][Window-1:0][Lanes*8-1:0] wr_data_i,
  input  logic [Lanes-1:0]                    wr_lanes_i,  // bytes of a word that requester 0 writes; 1: all
  output buffer_response_t [1:0]              wr_response_o
);
  localparam int unsigned Banks = Window;
  localparam int unsigned Rows = BufferWords / Banks;
  localparam int unsigned RowBits = $clog2(Rows);

  logic [3:0]                     rd_grant, rd_fault;
  logic [1:0]                     wr_grant, wr_fault;
  logic [3:0][Banks-1:0]          rd_named;
  logic [1:0][Banks-1:0]          wr_named;
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

  // Banks of a request.
  function automatic logic [Banks-1:0] named(logic valid, logic [1:0] word, logic [Window-1:0] mask);
    logic [Banks-1:0] found;
    for (int unsigned b = 0; b < Banks; b++) found[b] = valid && mask[2'(b) - word];
    return found;
  endfunction

  always_comb begin
    logic [Banks-1:0] earlier;
    earlier = '0;
    for (int unsigned i = 0; i < 4; i++) begin
      rd_named[i] = named(rd_i[i].valid, rd_i[i].word[1:0], i != 3 ? rd_i[i].mask : Window'(rd_i[i].mask[0]));
    end
    bank_read = '0;
    read_row = '0;
    for (int unsigned i = 0; i < 4; i++) begin
      // Banks of those who come before i; for the third of 0, 1 and 2 without those of a second who does not
      // get its own.
      earlier = '0;
      for (int unsigned j = 0; j < i; j++) earlier |= rd_named[j];
      if (rd_first_i && i < 2) earlier |= rd_named[2];
      if (rd_first_i && i == 1 && (rd_named[0] & rd_named[2]) != '0) earlier = rd_named[2];
      if (!rd_first_i && i == 2 && (rd_named[0] & rd_named[1]) != '0) earlier = rd_named[0];
      if (rd_first_i && i == 2) earlier = '0;
      rd_grant[i] = rd_i[i].valid && (rd_named[i] & earlier) == '0;
      rd_fault[i] = rd_grant[i] && over(rd_i[i].word, i != 3 ? rd_i[i].mask : Window'(rd_i[i].mask[0]));
      for (int unsigned b = 0; b < Banks; b++) begin
        if (rd_named[i][b] && !earlier[b]) begin
          bank_read[b] = rd_grant[i] && !rd_fault[i];
          read_row[b] = row_of(rd_i[i].word, 2'(b));
        end
      end
    end
  end

  always_comb begin
    for (int unsigned i = 0; i < 2; i++)
      wr_named[i] = named(wr_i[i].valid, wr_i[i].word[1:0], i < 1 ? wr_i[i].mask : Window'(wr_i[i].mask[0]));
    for (int unsigned i = 0; i < 2; i++) begin
      wr_grant[i] = wr_i[i].valid && (i == 0 || (wr_named[1] & wr_named[0]) == '0);
      wr_fault[i] = wr_grant[i] && over(wr_i[i].word, i < 1 ? wr_i[i].mask : Window'(wr_i[i].mask[0]));
    end
    write_second = ~wr_named[0];
    for (int unsigned b = 0; b < Banks; b++) begin
      bank_write[b] = write_second[b] ? wr_named[1][b] && wr_grant[1] && !wr_fault[1]
                                      : wr_grant[0] && !wr_fault[0];
      write_row[b] = write_second[b] ? row_of(wr_i[1].word, 2'(b)) : row_of(wr_i[0].word, 2'(b));
    end
  end

  for (genvar b = 0; b < Banks; b++) begin : gen_bank
    assign write_data[b] = write_second[b] ? wr_data_i[1][0] : wr_data_i[0][2'(b) - wr_i[0].word[1:0]];

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
        if (rd_grant[i]) turn_q[i] <= rd_i[i].word[1:0];
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

  for (genvar i = 0; i < 4; i++) begin : gen_read
    assign rd_response_o[i] = '{grant: rd_grant[i], fault: rd_fault[i]};
    `LF_ASSERT(GrantedOnceAsked, !rd_grant[i] || rd_i[i].valid, "a read is granted that was not asked for")
    for (genvar j = 0; j < i; j++) begin : gen_other
      `LF_ASSERT(ReadsApart, !(rd_grant[i] && rd_grant[j]) || (rd_named[i] & rd_named[j]) == '0,
                 "two reads go to a bank")
    end
  end
  for (genvar i = 0; i < 2; i++) begin : gen_write
    assign wr_response_o[i] = '{grant: wr_grant[i], fault: wr_fault[i]};
    `LF_ASSERT(GrantedOnceAsked, !wr_grant[i] || wr_i[i].valid, "a write is granted that was not asked for")
  end
  `LF_ASSERT(WritesApart, wr_grant != '1 || (wr_named[0] & wr_named[1]) == '0, "two writes go to a bank")

  logic unused;
  assign unused = ^{rd_i[3].mask[Window-1:1], wr_i[1].mask[Window-1:1], wr_data_i[1][Window-1:1]};
endmodule
