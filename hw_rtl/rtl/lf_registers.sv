// Registers that software sees: how to run, how it went, and counters.
//
// The port: one access a cycle. What is read appears in the next cycle, and stays until the next read.
module lf_registers
  import lf_isa_pkg::*;
  import lf_dma_pkg::*;
(
  input  logic                clk_i,
  input  logic                rst_ni,
  input  logic                valid_i,
  input  logic                write_i,
  input  logic [11:0]         addr_i,   // bytes; the lowest two bits are ignored
  input  logic [31:0]         wdata_i,
  output logic [31:0]         rdata_o,
  // To the core. Writes while it is busy are ignored, so these stay as they are.
  output logic                start_o,  // pulse
  output logic [27:0]         program_o,  // beat of the first word
  output logic [31:0]         words_o,
  output region_t             read_region_o,
  output region_t             write_region_o,
  output logic [31:0]         watchdog_o,
  // From the core.
  input  logic                busy_i,
  input  logic                done_i,
  input  logic                failed_i,
  input  error_e              error_i,
  input  queue_e              queue_i,
  input  logic [31:0]         index_i,
  input  logic [Counters-1:0] count_i,  // counters that go on in this cycle: those of bytes by 16, the others by 1
  input  logic                count_busy_i
);
  localparam int unsigned ByteCounters = int'(CountCycles);  // the first ones

  logic [27:0] program_q;
  logic [31:0] words_q;
  logic [31:0] read_base_q;
  logic [31:0] read_limit_q;
  logic [31:0] write_base_q;
  logic [31:0] write_limit_q;
  logic [31:0] watchdog_q;
  logic [63:0] counters_q [Counters];
  logic        start_q;
  logic        clear_q;
  logic [31:0] rdata_q;

  logic        write;
  logic [11:0] address;
  logic        unused;

  assign write   = valid_i && write_i && !busy_i;
  assign address = {addr_i[11:2], 2'b00};
  assign unused  = ^addr_i[1:0];

  // What a register holds. (A function, so that simulation looks for it only when it is read.)
  function automatic logic [31:0] held();
    unique case (address)
      RegId:             return Identification;
      RegStatus:         return {29'd0, failed_i && !start_q, done_i && !start_q, busy_i || start_q};
      RegError:          return {22'd0, queue_i, error_i};
      RegErrorIndex:     return index_i;
      RegProgramAddress: return {program_q, 4'd0};
      RegProgramWords:   return words_q;
      RegReadBase:       return read_base_q;
      RegReadLimit:      return read_limit_q;
      RegWriteBase:      return write_base_q;
      RegWriteLimit:     return write_limit_q;
      RegWatchdog:       return watchdog_q;
      default:           return '0;
    endcase
  endfunction

  function automatic logic [31:0] counted();
    logic [31:0] found;
    found = '0;
    for (int unsigned k = 0; k < Counters; k++) begin
      if (address[11:3] == 9'((32'(RegCounters) >> 3) + k)) found = address[2] ? counters_q[k][63:32] : counters_q[k][31:0];
    end
    return found;
  endfunction

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      program_q     <= '0;
      words_q       <= '0;
      read_base_q   <= '0;
      read_limit_q  <= '0;
      write_base_q  <= '0;
      write_limit_q <= '0;
      watchdog_q    <= '0;
      start_q       <= 1'b0;
      clear_q       <= 1'b0;
      rdata_q       <= '0;
    end else begin
      start_q <= 1'b0;
      clear_q <= 1'b0;
      if (write) begin
        unique case (address)
          RegControl: begin
            start_q <= wdata_i[0];
            clear_q <= wdata_i[1];
          end
          RegProgramAddress: program_q     <= wdata_i[31:4];
          RegProgramWords:   words_q       <= wdata_i;
          RegReadBase:       read_base_q   <= wdata_i;
          RegReadLimit:      read_limit_q  <= wdata_i;
          RegWriteBase:      write_base_q  <= wdata_i;
          RegWriteLimit:     write_limit_q <= wdata_i;
          RegWatchdog:       watchdog_q    <= wdata_i;
          default:           ;
        endcase
      end
      if (valid_i && !write_i) rdata_q <= held() | counted();
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      for (int unsigned k = 0; k < Counters; k++) counters_q[k] <= '0;
    end else if (clear_q) begin
      for (int unsigned k = 0; k < Counters; k++) counters_q[k] <= '0;
    end else if (count_busy_i) begin
      for (int unsigned k = 0; k < Counters; k++) begin
        if (count_i[k]) counters_q[k] <= counters_q[k] + (k < ByteCounters ? 64'(BeatBytes) : 64'd1);
      end
    end
  end

  assign rdata_o        = rdata_q;
  assign start_o        = start_q;
  assign program_o      = program_q;
  assign words_o        = words_q;
  assign watchdog_o     = watchdog_q;
  // Only whole beats are touched.
  assign read_region_o  = '{first: 29'(read_base_q[31:4]) + 29'(read_base_q[3:0] != '0), limit: 29'(read_limit_q[31:4])};
  assign write_region_o = '{first: 29'(write_base_q[31:4]) + 29'(write_base_q[3:0] != '0), limit: 29'(write_limit_q[31:4])};
endmodule
